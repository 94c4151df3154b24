"""The lengths of packed sequences, checked once for all layers of a step."""

from copy import copy
from operator import sub
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError
from .host_integers import Integers, read_cumulative, to_mlx


class VarlenInfo:
    """Where packed sequences begin: `flash_attention_varlen` takes it in the place of cu_seqlens_q.

    cu_seqlens_q, cu_seqlens_k: lists, or arrays of NumPy or MLX, as in `flash_attention_varlen`. Both have
        one number more than there are sequences; cu_seqlens_k defaults to cu_seqlens_q.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> info = tiny_llm.VarlenInfo([0, 3, 8])
    >>> query, key, value = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> for _ in range(2):  # layers of a model
    ...     query = tiny_llm.flash_attention_varlen(query, key, value, info, causal=True)
    >>> query.shape, info.num_sequences, info.max_seqlen_q
    ((8, 4, 64), 2, 5)

    Made once for a step: a call with it waits for nothing. Its arrays must not be written to. Its fields:
    cu_seqlens_q, cu_seqlens_k: int32 arrays
    num_sequences, and max_seqlen_q and max_seqlen_k, the rows of the longest sequence
    """

    __slots__ = ("_cu_seqlens_k", "_cu_seqlens_q", "_max_seqlen_k", "_max_seqlen_q", "_num_sequences")

    def __init__(self, cu_seqlens_q: Integers, cu_seqlens_k: Integers | None = None):
        name = type(self).__name__
        queries = read_cumulative(name, "cu_seqlens_q", cu_seqlens_q)
        keys = queries if cu_seqlens_k is None else read_cumulative(name, "cu_seqlens_k", cu_seqlens_k)
        if len(keys) != len(queries):
            raise ArgumentError(name, "cu_seqlens_k", (len(keys),), (len(queries),))
        self._cu_seqlens_q = to_mlx(queries)
        self._cu_seqlens_k = self._cu_seqlens_q if keys is queries else to_mlx(keys)
        self._num_sequences = len(queries) - 1
        self._max_seqlen_q, self._max_seqlen_k = (
            max(map(sub, rows[1:], rows), default=0) for rows in (queries, keys)
        )

    def native_arguments(self) -> dict[str, Any]:
        """The arguments of the native function."""
        return {"cu_seqlens_q": self._cu_seqlens_q, "cu_seqlens_k": self._cu_seqlens_k}

    # Copies share their memory, but an assignment to an element of one does not reach the checked numbers.
    @property
    def cu_seqlens_q(self) -> mx.array:
        return copy(self._cu_seqlens_q)

    @property
    def cu_seqlens_k(self) -> mx.array:
        return copy(self._cu_seqlens_k)

    @property
    def num_sequences(self) -> int:
        return self._num_sequences

    @property
    def max_seqlen_q(self) -> int:
        return self._max_seqlen_q

    @property
    def max_seqlen_k(self) -> int:
        return self._max_seqlen_k
