"""Matrices of which each rank has a part: their products are summed or joined over the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from ..embedding import Embedding, known_ids, nan_unless
from ..quantize import QuantizedEmbedding, QuantizedWeights
from ..runtime.ranks import Ranks


@dataclass(eq=False, slots=True)
class SummedWeights:
    """Some columns of a matrix: the sum of the products of all ranks is that of the matrix."""

    local: mx.array | QuantizedWeights
    ranks: Ranks

    @property
    def shape(self) -> tuple[int, ...]:
        """(O, I) of this rank's part."""
        return self.local.shape


@dataclass(eq=False, slots=True)
class JoinedWeights:
    """Some rows of a matrix of `rows` rows. Rank r has those from r * ceil(rows / size) on."""

    local: mx.array | QuantizedWeights
    ranks: Ranks
    rows: int

    @property
    def each(self) -> int:
        """The rows of each rank but the last ones, which may have fewer."""
        return -(-self.rows // self.ranks.size)

    def join(self, product: mx.array) -> mx.array:
        """The products [..., rows of a rank] of all ranks as one, [..., rows]."""
        flat = product.reshape(-1, product.shape[-1])
        if flat.shape[1] < self.each:
            flat = mx.pad(flat, [(0, 0), (0, self.each - flat.shape[1])])
        joined = mx.flatten(self.ranks.gather(flat).swapaxes(0, 1), 1)[:, : self.rows]
        return joined.reshape(*product.shape[:-1], self.rows)


class ShardedEmbedding:
    """An `Embedding` of which each rank has some rows. They are whole only in `weights`, which scores."""

    def __init__(self, weights: JoinedWeights, table: Embedding | QuantizedEmbedding):
        self.weight = weights
        self._table = table
        self.vocab_size = weights.rows
        self.embedding_dim = table.embedding_dim

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up the vectors [..., E] of the token `ids` [...]; an id outside 0..V-1 gives a row of NaN."""
        ids, known = known_ids(ids, self.vocab_size)
        local = ids.astype(mx.int64) - self.weight.ranks.rank * self.weight.each
        here = (local >= 0) & (local < self._table.vocab_size)
        rows = self._table(mx.where(here, local, 0))
        rows = mx.where(here[..., None], rows, mx.zeros_like(rows))
        return nan_unless(known, self.weight.ranks.sum(rows))
