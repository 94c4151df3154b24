"""Bits of a gradient depend on its own rows and keys only; hidden values never reach it."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support import native
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.tolerance import same_bits

L, S = 70, 200


def gradients(q, k, v, function=flash_attention, **options):
    """dQ, dK, dV for cotangents that a row keeps in whatever batch it is."""
    d_out = mx.broadcast_to(
        normal(q.shape[-2] + 16, q.shape[-1], dtype=q.dtype, seed=5)[: q.shape[-2]], q.shape
    )
    d_lse = mx.broadcast_to(normal(q.shape[-2] + 16, seed=6)[: q.shape[-2]], q.shape[:-1])
    both = lambda *x: list(function(*x, causal=True, return_lse=True, **options))  # noqa: E731
    return mx.vjp(both, [q, k, v], [d_out, d_lse])[1]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_twenty_runs_give_the_same_bits(dtype):
    inputs = qkv(L=L, S=S, dtype=dtype)
    first = gradients(*inputs)
    assert all(same_bits(first, gradients(*inputs)) for _ in range(20))


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_the_number_of_threads_changes_no_bit(dtype):
    inputs = qkv(L=300, S=700, dtype=dtype)
    first = gradients(*inputs, function=native.attention, threads=1)
    for threads in (2, 3, 8):
        assert same_bits(first, gradients(*inputs, function=native.attention, threads=threads))


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("batch", [7, 64])
def test_the_rest_of_the_batch_changes_no_bit(batch, dtype):
    inputs = qkv(batch=(batch,), heads=4, kv_heads=2, L=33, S=70, E=16, dtype=dtype)
    together = gradients(*inputs)
    for b in (0, batch // 2, batch - 1):
        alone = gradients(*(x[b : b + 1] for x in inputs))
        assert same_bits(alone, [x[b : b + 1] for x in together])


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_neighbouring_heads_change_no_bit(dtype):
    q, k, v = qkv(heads=6, kv_heads=3, L=L, S=S, dtype=dtype)
    together = gradients(q, k, v)
    alone = gradients(q[:, 2:4], k[:, 1:2], v[:, 1:2])
    assert same_bits(alone, [x[:, n : n + len(x[0]) // 3] for x, n in zip(together, (2, 1, 1), strict=True)])


@pytest.mark.parametrize("value", [9.0, float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("before", "after"), [(0, 50), (13, 0), (1, 700)])
def test_padding_has_no_gradient_and_changes_no_bit(before, after, dtype, value):
    """Whatever it holds, and whatever the cotangents of padding rows hold."""
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    alone = gradients(q, k, v)

    def padded(x, before, after):
        return mx.pad(x, [(0, 0), (0, 0), (before, after), (0, 0)], constant_values=value)

    options = {"kv_start": lengths(before, before), "kv_lens": lengths(S, S), "q_lens": lengths(L, L)}
    wide = gradients(padded(q, 0, 5), padded(k, before, after), padded(v, before, after), **options)
    assert same_bits(alone, [wide[0][:, :, :L], *(x[:, :, before : before + S] for x in wide[1:])])
    assert not wide[0][:, :, L:].any()
    for x in wide[1:]:
        assert not x[:, :, :before].any()
        assert not x[:, :, before + S :].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_later_tokens_change_no_gradient_of_earlier_queries(dtype):
    q, k, v = qkv(L=S, S=S, dtype=dtype)
    before = gradients(q, k, v)[0]
    for t in (1, 63, 64, 150):
        k[:, :, t:], v[:, :, t:] = k[:, :, t:] + 1, v[:, :, t:] - 2
        after = gradients(q, k, v)[0]
        assert mx.array_equal(before[:, :, :t], after[:, :, :t])
        assert not mx.array_equal(before[:, :, t:], after[:, :, t:])
        before = after


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_rows_that_see_nothing_take_no_part(dtype):
    """Neither NaN in such a query nor in its cotangent reaches dK and dV."""
    q, k, v = qkv(L=L, S=S, dtype=dtype)
    sees = (mx.arange(L) % 5 != 3)[:, None]
    mask = random_mask(L, S) & sees
    d_out = mx.broadcast_to(normal(L, q.shape[-1], dtype=dtype, seed=5), q.shape)

    def attend(q, k, v):
        return [flash_attention(q, k, v, causal=True, mask=mask)]

    def with_value(x, value):
        return mx.where(sees, x, mx.array(value, dtype))

    clean = mx.vjp(attend, [with_value(q, 1), k, v], [with_value(d_out, 1)])[1]
    dirty = mx.vjp(attend, [with_value(q, mx.nan), k, v], [with_value(d_out, mx.nan)])[1]
    assert same_bits(clean, dirty)
    assert not mx.where(sees, 0, dirty[0]).any()


@pytest.mark.parametrize("hide", ["bool", "float", "window"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_hidden_value_of_nan_changes_no_gradient(dtype, hide):
    """A window shows it to some rows; these, and the keys that they see, have no gradient."""
    q, k, v = qkv(L=300, S=300, dtype=dtype)
    keep = mx.broadcast_to(mx.arange(300) != 250, (300, 300))
    options = {
        "bool": {"mask": keep},
        "float": {"mask": mx.where(keep, 0.0, -mx.inf)},
        "window": {"window": 6},
    }
    clean = gradients(q, k, v, **options[hide])
    v[..., 250, :] = mx.nan
    dirty = gradients(q, k, v, **options[hide])
    rows, keys = mx.zeros(300, mx.bool_), mx.zeros(300, mx.bool_)
    if hide == "window":
        rows[250:256], keys[245:256] = True, True
    for nan, a, b in zip((rows, keys, mx.zeros(300, mx.bool_)), clean, dirty, strict=True):
        nan = nan[:, None]
        assert mx.array_equal(mx.where(nan, 0, a), mx.where(nan, 0, b))
        assert mx.where(nan, mx.isnan(b), True).all()


@pytest.mark.parametrize("which", [0, 1, 2], ids=["q", "k", "v"])
def test_a_visible_nan_surfaces(which):
    inputs = list(qkv(L=L, S=L))
    inputs[which][0, 0, 10, 3] = mx.nan
    dq = gradients(*inputs)[0]
    assert mx.isnan(dq[0, 0, 10]).all()
    assert mx.isfinite(dq[1]).all()
    if which == 0:
        assert mx.isfinite(dq[0, 0, :10]).all()
        assert mx.isfinite(dq[0, 0, 11:]).all()
