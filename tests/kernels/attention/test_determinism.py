"""Equal inputs give equal bits; the bits of a row depend only on its own query and keys."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support import native
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv

SHAPES = [(70, 131), (1, 5000), (9, 3000)]


def both(*inputs, **options):
    return flash_attention(*inputs, **options, batch_invariant=True, return_lse=True)


def equal(first, second):
    return all(mx.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), SHAPES)
def test_twenty_runs_give_the_same_bits(L, S, dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    first = both(q, k, v, causal=True)
    assert all(equal(first, both(q, k, v, causal=True)) for _ in range(20))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), SHAPES)
def test_the_number_of_threads_changes_no_bit(L, S, dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    first = native.attention(q, k, v, causal=True, threads=1)
    for threads in (2, 3, 8):
        assert equal(first, native.attention(q, k, v, causal=True, threads=threads))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(33, 70), (1, 3000)])
@pytest.mark.parametrize("batch", [7, 64])
def test_the_rest_of_the_batch_changes_no_bit(batch, L, S, dtype):
    q, k, v = qkv(batch=(batch,), heads=2, kv_heads=1, L=L, S=S, E=16, dtype=dtype)
    together = both(q, k, v, causal=True)
    for b in (0, batch // 2, batch - 1):
        alone = both(*(x[b : b + 1] for x in (q, k, v)), causal=True)
        assert equal(alone, [x[b : b + 1] for x in together])


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), [(33, 70), (1, 3000)])
@pytest.mark.parametrize(("before", "after"), [(0, 50), (13, 0), (1, 700)])
def test_padding_changes_no_bit(before, after, L, S, dtype):
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    packed = both(q, k, v, causal=True)
    widths = [(0, 0), (0, 0), (before, after), (0, 0)]
    options = {"kv_start": lengths(before, before), "kv_lens": lengths(S, S)}
    padded = both(
        q, mx.pad(k, widths, constant_values=9), mx.pad(v, widths, constant_values=9), causal=True, **options
    )
    assert equal(packed, padded)
    more_rows = mx.pad(q, [(0, 0), (0, 0), (0, 5), (0, 0)], constant_values=9)
    longer = both(more_rows, k, v, causal=True, q_lens=lengths(L, L))
    assert equal(packed, [x[:, :, :L] for x in longer])


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_neighbouring_heads_change_no_bit(dtype):
    q, k, v = qkv(heads=6, kv_heads=3, L=70, S=131, dtype=dtype)
    together = both(q, k, v, causal=True)
    alone = both(q[:, 2:4], k[:, 1:2], v[:, 1:2], causal=True)
    assert equal(alone, [x[:, 2:4] for x in together])


@pytest.mark.parametrize("factor", [1e3, 1e12, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
def test_enormous_scores_in_a_neighbouring_row_change_no_bit(dtype, factor):
    q, k, v = qkv(L=70, S=131, dtype=dtype)
    before = both(q, k, v)
    q[..., 5, :] = q[..., 5, :] * factor
    after = both(q, k, v)
    others = mx.arange(70) != 5
    for a, b in zip(before, after, strict=True):
        row = others[:, None] if a.ndim == 4 else others
        assert mx.array_equal(mx.where(row, a, 0), mx.where(row, b, 0))


def test_gradients_are_deterministic():
    q, k, v = qkv(L=70, S=131)
    grad = mx.grad(lambda *x: flash_attention(*x, causal=True).square().sum(), argnums=(0, 1, 2))
    assert equal(grad(q, k, v), grad(q, k, v))
