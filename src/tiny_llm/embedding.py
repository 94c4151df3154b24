"""The table of token vectors: its rows are the model's input, and as a linear map it can give the logits."""

import mlx.core as mx

from .basics import linear
from .checks.arrays import check_floats, check_integers
from .checks.types import check_size
from .errors import ArgumentError


class Embedding:
    """One vector of size `embedding_dim` for each of `vocab_size` tokens; weight [V, E]."""

    def __init__(self, vocab_size: int, embedding_dim: int, weight: mx.array):
        check_size("Embedding", "vocab_size", vocab_size)
        check_size("Embedding", "embedding_dim", embedding_dim)
        check_floats("Embedding", weight=weight)
        if weight.shape != (vocab_size, embedding_dim):
            raise ArgumentError("Embedding", "weight", weight.shape, f"({vocab_size}, {embedding_dim})")
        self.vocab_size = vocab_size
        self.embedding_dim = embedding_dim
        self.weight = weight

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up the vectors [..., E] of the token `ids` [...]; an id outside 0..V-1 gives a row of NaN."""
        ids, known = known_ids(ids, self.vocab_size)
        return nan_unless(known, self.weight[ids])

    def as_linear(self, x: mx.array) -> mx.array:
        """Score the vectors `x` [..., E] against every token's vector: logits [..., V]."""
        return linear(x, self.weight)


def known_ids(ids: mx.array, vocab_size: int) -> tuple[mx.array, mx.array]:
    """The ids with unknown ones replaced by 0, and a bool array that is False for these."""
    check_integers("Embedding", ids=ids)
    # MLX checks no index, so it would read past the table. An error here would need the values of the ids,
    # which are not computed yet in a decode step.
    ids = ids.astype(mx.uint64 if ids.dtype.size == 8 else mx.uint32)  # negative ids become large ones
    known = ids < vocab_size
    return mx.where(known, ids, 0), known


def nan_unless(known: mx.array, vectors: mx.array) -> mx.array:
    """The vectors [..., E], with NaN for ids that are not `known` [...]."""
    return mx.where(known[..., None], vectors, mx.array(mx.nan, vectors.dtype))
