"""Tokens that are all different, and assertions that a cache returns those that were appended."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

HEADS, SIZE = 2, 3

Tokens = Any  # a NumPy array [rows, HEADS, tokens, SIZE]


class Source:
    """Keys and values whose numbers never repeat: no two tokens are equal."""

    def __init__(self) -> None:
        self.next = 1

    def tokens(self, length: int, rows: int = 1) -> tuple[Tokens, Tokens]:
        count = rows * HEADS * length * SIZE
        key = np.arange(self.next, self.next + count, dtype=np.float32).reshape(rows, HEADS, length, SIZE)
        self.next += count
        return key, -key


def appended(known: Tokens | None, new: Tokens) -> Tokens:
    return new if known is None else np.concatenate([known, new], axis=2)


def assert_holds(pair: tuple[mx.array, mx.array], known: Tokens) -> None:
    assert np.array_equal(np.array(pair[0]), known)
    assert np.array_equal(np.array(pair[1]), -known)


def assert_pages_hold(metadata: Any, row: int, known: Tokens) -> None:
    """The pages of the block table hold the tokens `known`."""
    table, length = metadata.block_table[row].tolist(), metadata.context_lens[row].item()
    assert length == known.shape[2]
    used = -(-length // metadata.page_size)
    assert all(page >= 0 for page in table[:used])
    assert table[used:] == [-1] * (len(table) - used)
    pages = np.array(metadata.key_pages), np.array(metadata.value_pages)
    found = [np.concatenate([side[page] for page in table[:used]], axis=1)[None] for side in pages]
    assert np.array_equal(found[0][:, :, :length], known)
    assert np.array_equal(found[1][:, :, :length], -known)
