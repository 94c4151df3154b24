"""Attention of a server: packed tokens, keys and values in pages, and no weights of its own."""

from dataclasses import dataclass, field
from itertools import pairwise

import mlx.core as mx

from ..attention import flash_attention_varlen, paged_attention, paged_attention_decode, store_kvcache
from ..checks.arrays import check_arrays, check_shape
from ..checks.types import check_number, check_size, check_type
from ..errors import ArgumentError, calling
from ..ops.arguments import Lengths


@dataclass(frozen=True, slots=True)
class PrefillMetadata:
    """A step of prompts, or of parts of prompts.

    cu_seqlens_q: the first new token of each prompt, and the number of all
    cu_seqlens_k: the same for all tokens, those in pages from earlier steps included; default cu_seqlens_q
    slot_mapping: [T] the slot of each new token in the caches; None stores nothing
    block_tables: [B, max_blocks] the pages of each prompt; needed where cu_seqlens_k has more tokens
    context_lens: [B] the tokens of each prompt, if they are read from pages; made once, for all layers
    """

    cu_seqlens_q: Lengths
    cu_seqlens_k: Lengths = None
    slot_mapping: mx.array | None = None
    block_tables: mx.array | None = None
    context_lens: mx.array | None = field(init=False)

    def __post_init__(self) -> None:
        new, tokens = _numbers(self.cu_seqlens_q), _numbers(self.cu_seqlens_k)
        contexts = None
        if tokens and tokens != new:
            contexts = mx.array([end - begin for begin, end in pairwise(tokens)], mx.int32)
            if self.block_tables is None:
                expected = "the pages of earlier tokens, because cu_seqlens_k is not cu_seqlens_q"
                raise ArgumentError("PrefillMetadata", "block_tables", None, expected)
        object.__setattr__(self, "context_lens", contexts)


@dataclass(frozen=True, slots=True)
class DecodeMetadata:
    """A step of one new token for each sequence.

    context_lens: [B] the tokens of each sequence, the new one included
    block_tables: [B, max_blocks] their pages
    slot_mapping: [B] the slot of each new token in the caches; None stores nothing
    """

    context_lens: mx.array
    block_tables: mx.array
    slot_mapping: mx.array | None = None


Metadata = PrefillMetadata | DecodeMetadata


class Attention:
    """Causal attention of new tokens, after their keys and values are stored in `k_cache` and `v_cache`.

    Scores are scale * head_dim ** -0.5 * (q . k). The caches are [P, page_size, num_kv_heads, head_dim]; the
    owner of the memory sets them, and they are no parameters of a model that has this layer. block_size, if
    given, must be their page size.

    >>> import mlx.core as mx
    >>> from tiny_llm.nn import Attention, DecodeMetadata, PrefillMetadata
    >>> attention = Attention(num_heads=4, head_dim=64, num_kv_heads=2)
    >>> attention.k_cache, attention.v_cache = mx.zeros((6, 16, 2, 64)), mx.zeros((6, 16, 2, 64))
    >>> q, k, v = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> slots = mx.array([16, 17, 18, 0, 1, 2, 3, 4])  # three tokens in page 1, five in page 0
    >>> attention(q, k, v, PrefillMetadata([0, 3, 8], slot_mapping=slots)).shape
    (8, 4, 64)
    >>> step = DecodeMetadata(mx.array([4, 6]), mx.array([[1], [0]]), slot_mapping=mx.array([19, 5]))
    >>> attention(q[:2], k[:2], v[:2], step).shape
    (2, 4, 64)
    """

    k_cache: mx.array | None = None
    v_cache: mx.array | None = None

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        scale: float = 1.0,
        num_kv_heads: int | None = None,
        block_size: int | None = None,
    ):
        name = type(self).__name__
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        sizes = {"num_heads": num_heads, "head_dim": head_dim, "num_kv_heads": num_kv_heads}
        for argument, size in sizes.items():
            check_size(name, argument, size)
        if num_heads % num_kv_heads:
            raise ArgumentError(name, "num_kv_heads", num_kv_heads, f"a divisor of num_heads, {num_heads}")
        check_number(name, "scale", scale)
        if block_size is not None:
            check_size(name, "block_size", block_size)
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.scale = scale * head_dim**-0.5
        self.block_size = block_size

    def __call__(self, q: mx.array, k: mx.array, v: mx.array, metadata: Metadata) -> mx.array:
        """q [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim] -> [T, num_heads, head_dim]."""
        name = type(self).__name__
        check_arrays(name, q=q, k=k, v=v)
        check_shape(name, "q", q.shape, ("T", self.num_heads, self.head_dim))
        check_shape(name, "k", k.shape, (q.shape[0], self.num_kv_heads, self.head_dim))
        check_shape(name, "v", v.shape, k.shape)
        check_type(name, "metadata", metadata, Metadata, "PrefillMetadata or DecodeMetadata")
        pages = {"key_pages": "k_cache", "value_pages": "v_cache", "block_table": "block_tables"}
        with calling(name, query="q", key="k", value="v", page_size="block_size", **pages):
            if metadata.slot_mapping is not None:
                k_cache, v_cache = self._caches()
                self.k_cache, self.v_cache = store_kvcache(
                    k, v, k_cache, v_cache, metadata.slot_mapping, self.block_size
                )
            if isinstance(metadata, DecodeMetadata):
                return self._decode(q, metadata)
            return self._prefill(q, k, v, metadata)

    def _decode(self, q: mx.array, metadata: DecodeMetadata) -> mx.array:
        sizes = (self.num_heads, self.num_kv_heads, self.head_dim)
        tables, contexts = metadata.block_tables, metadata.context_lens
        return paged_attention_decode(
            q, *self._caches(), tables, contexts, self.scale, *sizes, self.block_size
        )

    def _prefill(self, q: mx.array, k: mx.array, v: mx.array, metadata: PrefillMetadata) -> mx.array:
        if metadata.context_lens is None or metadata.block_tables is None:
            starts = metadata.cu_seqlens_q
            out: mx.array = flash_attention_varlen(q, k, v, starts, scale=self.scale, causal=True)
            return out
        tables, contexts = metadata.block_tables, metadata.context_lens
        paged: mx.array = paged_attention(
            q, *self._caches(), tables, contexts, self.block_size, self.scale,
            layout="PSHE", causal=True, cu_seqlens_q=metadata.cu_seqlens_q,
        )  # fmt: skip
        return paged

    def _caches(self) -> tuple[mx.array, mx.array]:
        if self.k_cache is None or self.v_cache is None:
            raise ArgumentError(type(self).__name__, "k_cache", None, "pages, set before the first call")
        return self.k_cache, self.v_cache


def _numbers(cu_seqlens: Lengths) -> list[int] | None:
    if cu_seqlens is None:
        return None
    numbers: list[int] = list(cu_seqlens.tolist() if isinstance(cu_seqlens, mx.array) else cu_seqlens)  # type: ignore[arg-type]
    return numbers
