"""The table of token vectors, read by row at the bottom of the model and as a linear map at its top."""

import mlx.core as mx

from .basics import linear


class Embedding:
    """One vector of size `embedding_dim` for each of `vocab_size` tokens; weight [V, E]."""

    def __init__(self, vocab_size: int, embedding_dim: int, weight: mx.array):
        if weight.shape != (vocab_size, embedding_dim):
            raise ValueError(
                f"Embedding: weight: got shape {weight.shape}, expected ({vocab_size}, {embedding_dim})"
            )
        self.vocab_size = vocab_size
        self.embedding_dim = embedding_dim
        self.weight = weight

    def __call__(self, ids: mx.array) -> mx.array:
        """Look up the vectors [..., E] of the token `ids` [...]; an id outside 0..V-1 gives a row of NaN."""
        if not mx.issubdtype(ids.dtype, mx.integer):
            raise TypeError(f"Embedding: ids: got {ids.dtype}, expected integers")
        # MLX checks no index: it would read whatever lies behind the table. An error here would have to wait
        # for the ids, which while decoding are themselves still being computed.
        ids = ids.astype(mx.int64)  # a narrow type could not be compared with the vocabulary's size
        known = mx.logical_and(ids >= 0, ids < self.vocab_size)
        vectors = self.weight[mx.where(known, ids, 0)]
        return mx.where(known[..., None], vectors, mx.array(mx.nan, self.weight.dtype))

    def as_linear(self, x: mx.array) -> mx.array:
        """Score the vectors `x` [..., E] against every token's vector: logits [..., V]."""
        return linear(x, self.weight)
