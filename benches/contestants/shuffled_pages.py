"""Keys or values of sequences in pages of a random order, and the same without pages."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np


class ShuffledPages:
    """Places of all tokens. Free slots of a pool hold NaN: a contestant that reads one fails the gate."""

    def __init__(self, lengths: Sequence[int], page: int) -> None:
        counts = [-(-length // page) for length in lengths]
        ids = iter(np.random.default_rng(0).permutation(sum(counts)).tolist())
        table = np.full((len(lengths), max(counts)), -1)  # -1 after the last page of a sequence
        slots = []
        for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            table[row, :count] = [next(ids) for _ in range(count)]
            place = np.arange(length)
            slots.append(table[row, place // page] * page + place % page)
        self.page, self.table = page, mx.array(table, mx.int32)
        self._slots = mx.array(np.concatenate(slots), mx.int32)  # of all tokens, sequence by sequence
        self._used = np.arange(max(lengths)) < np.array(lengths)[:, None]

    def pool(self, rows: mx.array) -> mx.array:
        """[batch, longest, H, D] -> pages [P, page, H, D]."""
        slots = int(self.table.max().item() + 1) * self.page
        pool = mx.full((slots, *rows.shape[2:]), mx.nan, rows.dtype)
        pool[self._slots] = rows[tuple(map(mx.array, np.nonzero(self._used)))]
        return pool.reshape(-1, self.page, *rows.shape[2:])

    def dense(self, rows: mx.array) -> mx.array:
        """[batch, longest, H, D] -> [batch, H, longest, D], with 0 after the last token.

        0, because MLX multiplies hidden values by 0, too.
        """
        used = mx.array(self._used)[..., None, None]
        return mx.contiguous(mx.where(used, rows, 0).swapaxes(1, 2))
