"""Causal attention of packed prompts without FlashAttention, to compare `flash_attention_prefill` with."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import mlx.core as mx

from ..checks.arrays import check_arrays, check_float_dtype, check_integers, check_same_dtype, check_shape
from ..checks.types import check_int, check_size, kind
from ..errors import ArgumentError, ArgumentTypeError
from ..ops.arguments import Lengths, check_scale
from ..ops.dense import attend
from ..ops.varlen import check_prompt_sizes
from .schedules import add_tile, divide, no_keys


def standard_attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    cu_seqlens: Lengths,
    scale: float | mx.array | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> mx.array:
    """`flash_attention_prefill` with the whole score matrix of a prompt in memory; same arguments and result.

    Neighbouring prompts of equal length are one batch. Scores are float32.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> q, k, v = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> tiny_llm.standard_attention(q, k, v, [0, 3, 8], 64**-0.5, 4, 2, 64).shape
    (8, 4, 64)
    """
    name = "standard_attention"
    starts = _checked(name, q, k, v, cu_seqlens, scale, (num_heads, num_kv_heads, head_dim))
    outputs = [mx.zeros((0, *q.shape[1:]), q.dtype)]
    for batch in equal_prompts(starts):
        query, key, value = (batch.take(x) for x in (q, k, v))  # [B, heads, L, D]
        query = mx.unflatten(query, 1, (num_kv_heads, -1))
        hidden = mx.arange(batch.length) <= mx.arange(batch.length)[:, None]
        out = attend(query, key[:, :, None], value[:, :, None], scale, hidden)
        outputs.append(batch.put(mx.flatten(out, 1, 2)))
    return mx.concatenate(outputs)


def naive_tile_attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    cu_seqlens: Lengths,
    scale: float | mx.array | None,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    max_seq_len: int | None = None,
) -> mx.array:
    """`flash_attention_prefill` with a single tile of max_seq_len tokens for each prompt; same result.

    All prompts are computed at once, each padded to the tile. A prompt longer than max_seq_len is an error.
    max_seq_len defaults to `naive_tile_tokens(head_dim)`.

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> q, k, v = mx.ones((8, 4, 64)), mx.ones((8, 2, 64)), mx.ones((8, 2, 64))
    >>> tiny_llm.naive_tile_attention(q, k, v, [0, 3, 8], 64**-0.5, 4, 2, 64, max_seq_len=16).shape
    (8, 4, 64)
    """
    name = "naive_tile_attention"
    starts = _checked(name, q, k, v, cu_seqlens, scale, (num_heads, num_kv_heads, head_dim))
    tokens = naive_tile_tokens(head_dim) if max_seq_len is None else max_seq_len
    check_size(name, "max_seq_len", tokens)
    lengths = [end - begin for begin, end in pairwise(starts)]
    if max(lengths, default=0) > tokens:
        raise ArgumentError(name, "cu_seqlens", f"a prompt of {max(lengths)} tokens", f"at most {tokens}")
    if q.shape[0] == 0:
        return q
    place = mx.arange(tokens)
    held = place < mx.array(lengths)[:, None]  # [B, tokens]: the others are padding
    rows = mx.where(held, mx.array(starts[:-1])[:, None] + place, 0)
    # Padding is 0, not a row of another prompt, whose NaN would reach the sums.
    tiles = (mx.where(held[..., None, None], x[rows], 0).astype(mx.float32) for x in (q, k, v))
    query, key, value = (x.swapaxes(1, 2) for x in tiles)
    query = mx.unflatten(query, 1, (num_kv_heads, -1))
    scores = query @ key[:, :, None].swapaxes(-1, -2) * (head_dim**-0.5 if scale is None else scale)
    scores = mx.where(place <= place[:, None], scores, -mx.inf)
    state, _ = add_tile(no_keys(query), scores, value[:, :, None])
    out = mx.flatten(divide(state)[0], 1, 2).swapaxes(1, 2).astype(q.dtype)  # [B, tokens, heads, D]
    prompts = (out[number, :length] for number, length in enumerate(lengths))
    return mx.concatenate(list(prompts))


def naive_tile_tokens(head_dim: int) -> int:
    """The longest prompt of a one-tile kernel on a GPU, where the tile is on the chip."""
    return 64 if head_dim > 64 else 128


class EqualPrompts(NamedTuple):
    """`prompts` prompts of `length` tokens each, from row `first` on."""

    first: int
    prompts: int
    length: int

    def take(self, x: mx.array) -> mx.array:
        """Their rows of x [T, heads, D] as a batch [prompts, heads, length, D]."""
        rows = x[self.first : self.first + self.prompts * self.length]
        return rows.reshape(self.prompts, self.length, *x.shape[1:]).swapaxes(1, 2)

    def put(self, x: mx.array) -> mx.array:
        """A batch [prompts, heads, length, D] as rows [prompts * length, heads, D]."""
        return x.swapaxes(1, 2).reshape(-1, x.shape[1], x.shape[3])


def equal_prompts(starts: list[int]) -> Iterator[EqualPrompts]:
    """The prompts that begin at `starts`, as batches of neighbours of equal length, without empty ones."""
    for length, group in groupby(pairwise(starts), key=lambda ends: ends[1] - ends[0]):
        found = list(group)
        if length:
            yield EqualPrompts(found[0][0], len(found), length)


def _checked(
    name: str,
    q: mx.array,
    k: mx.array,
    v: mx.array,
    cu_seqlens: Lengths,
    scale: float | mx.array | None,
    sizes: tuple[int, int, int],
) -> list[int]:
    """The numbers of cu_seqlens, after all checks."""
    check_arrays(name, q=q, k=k, v=v)
    check_shape(name, "k", k.shape[:1], q.shape[:1])
    check_prompt_sizes(name, q, k, v, *sizes)
    check_float_dtype(name, "q", q.dtype)
    for argument, x in (("k", k), ("v", v)):
        check_same_dtype(name, argument, x.dtype, q.dtype, "q")
    num_heads, num_kv_heads, _ = sizes
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ArgumentError(name, "num_heads", num_heads, f"a multiple of num_kv_heads, {num_kv_heads}")
    check_scale(name, scale)
    starts = _numbers(name, cu_seqlens)
    fits = starts[:1] == [0] and starts == sorted(starts) and starts[-1] == q.shape[0]
    if not fits:
        expected = f"0 first, {q.shape[0]} rows of q last, and none less than the one before"
        raise ArgumentError(name, "cu_seqlens", starts, expected)
    return starts


def _numbers(name: str, cu_seqlens: Lengths) -> list[int]:
    if isinstance(cu_seqlens, mx.array):
        check_integers(name, cu_seqlens=cu_seqlens)
        check_shape(name, "cu_seqlens", cu_seqlens.shape, ("B + 1",))
        return [int(number) for number in cu_seqlens.tolist()]  # type: ignore[union-attr, arg-type]
    if isinstance(cu_seqlens, str) or not isinstance(cu_seqlens, Sequence):
        raise ArgumentTypeError(name, "cu_seqlens", kind(cu_seqlens), "a list of int or an mlx array")
    for number in cu_seqlens:
        check_int(name, "cu_seqlens", number)
    return list(cu_seqlens)
