"""A row has the same bits alone, in any batch, padded, packed between others, and over pages in any order."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention, flash_attention_varlen, paged_attention

from ...support.attention.pages import paged
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv
from ...support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

HEADS, KV_HEADS, E = 4, 2, 64
OPTIONS = {"causal": True, "return_lse": True}


def sequence(L, S, dtype, seed=0):
    return qkv(batch=(), heads=HEADS, kv_heads=KV_HEADS, L=L, S=S, E=E, dtype=dtype, seed=seed)


def in_a_batch(size, q, k, v):
    """In the middle of others of the same lengths."""
    others = sequence(q.shape[1], k.shape[1], q.dtype, seed=1)
    inputs = [
        mx.stack([one if b == size // 2 else other for b in range(size)])
        for one, other in zip((q, k, v), others, strict=True)
    ]
    out, lse = flash_attention(*inputs, **OPTIONS, batch_invariant=True)
    return out[size // 2], lse[size // 2]


def padded(before, after, q, k, v):
    """NaN around the keys and below the queries."""
    rows, keys = q.shape[1], k.shape[1]
    q = mx.pad(q, [(0, 0), (0, 5), (0, 0)], constant_values=mx.nan)
    k, v = (mx.pad(x, [(0, 0), (before, after), (0, 0)], constant_values=mx.nan) for x in (k, v))
    out, lse = flash_attention(
        q[None], k[None], v[None], **OPTIONS, batch_invariant=True,
        q_lens=lengths(rows), kv_start=lengths(before), kv_lens=lengths(keys),
    )  # fmt: skip
    return out[0, :, :rows], lse[0, :, :rows]


def rows_first(x):
    return x.swapaxes(0, 1)


def packed(q, k, v):
    """Between a sequence of another length, one without keys and a long one."""
    before, after = sequence(9, 20, q.dtype, seed=2), sequence(3, 700, q.dtype, seed=3)
    query = mx.concatenate([rows_first(x) for x in (before[0], q, before[0], after[0])])
    key, value = (
        mx.concatenate([rows_first(x) for x in (before[i], one, after[i])]) for i, one in ((1, k), (2, v))
    )
    rows, keys = q.shape[1], k.shape[1]
    out, lse = flash_attention_varlen(
        query, key, value, [0, 9, 9 + rows, 18 + rows, 21 + rows], [0, 20, 20 + keys, 20 + keys, 720 + keys],
        **OPTIONS, batch_invariant=True,
    )  # fmt: skip
    here = slice(9, 9 + rows)
    return rows_first(out[here]), rows_first(lse[here])


def over_pages(page_size, order, layout, q, k, v):
    """The second of three sequences, in pages of that size in a random order."""
    rows, keys = q.shape[1], k.shape[1]
    pages = paged(mx.stack([k, k, k]), mx.stack([v, v, v]), [min(5, keys), keys, 0], page_size, seed=order)
    if layout == "PSHE":
        moved = (mx.contiguous(x.swapaxes(1, 2)) for x in pages[:2])
        pages = pages._replace(**dict(zip(("key_pages", "value_pages"), moved, strict=True)))
    query = mx.concatenate([rows_first(q)[:1], rows_first(q), rows_first(q)[:1]])
    out, lse = paged_attention(
        query, *pages, **OPTIONS, layout=layout, cu_seqlens_q=[0, 1, 1 + rows, 2 + rows]
    )
    return rows_first(out[1 : 1 + rows]), rows_first(lse[1 : 1 + rows])


WAYS = {
    "batch of 7": lambda *x: in_a_batch(7, *x),
    "batch of 64": lambda *x: in_a_batch(64, *x),
    "left padded": lambda *x: padded(13, 0, *x),
    "right padded": lambda *x: padded(0, 50, *x),
    "padded into a long cache": lambda *x: padded(1, 3000, *x),
    "packed": packed,
    "pages of 7": lambda *x: over_pages(7, 1, "PHSE", *x),
    "pages of 7 in another order": lambda *x: over_pages(7, 2, "PHSE", *x),
    "pages of 16, slots first": lambda *x: over_pages(16, 3, "PSHE", *x),
    "pages of 256": lambda *x: over_pages(256, 4, "PHSE", *x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(1, 300), (1, 2500), (9, 300), (33, 70), (70, 33)])
def test_the_bits_of_a_row(way, L, S, dtype):
    one = sequence(L, S, dtype)
    alone = flash_attention(*(x[None] for x in one), **OPTIONS, batch_invariant=True)
    assert same_bits([x[0] for x in alone], WAYS[way](*one))
