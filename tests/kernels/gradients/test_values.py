"""dQ, dK, dV and dsinks of every option, size and dtype against the float64 oracle."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.gradients import check_gradients, gradients
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask

L, S = 70, 200  # several tiles along both axes

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "causal window": {"causal": True, "window": 33},
    "window": {"window": (20, 7)},
    "softcap": {"softcap": 1.5, "scale": 0.4},
    "negative scale": {"scale": -0.3},
    "bool mask": {"mask": random_mask(L, S, keep=0.5)},
    "float mask of heads": {"mask": normal(2, 4, L, S, seed=8)},
    "half mask, causal": {"mask": normal(L, S, seed=8, dtype=mx.float16), "causal": True},
    "mask of keys": {"mask": random_mask(2, 1, 1, S)},
    "mask of keys for each head": {"mask": random_mask(4, 1, S)},
    "mask of rows": {"mask": random_mask(2, 1, L, 1)},
    "lengths": {
        "causal": True,
        "q_lens": lengths(L, 13),
        "kv_start": lengths(0, 30),
        "kv_lens": lengths(S, 90),
    },
    "no keys": {"kv_lens": lengths(0, S)},
    "everything": {
        "causal": True,
        "window": 90,
        "softcap": 3.0,
        "mask": random_mask(2, 4, L, S),
        "q_lens": lengths(65, L),
        "kv_start": lengths(3, 0),
    },
}


@pytest.mark.parametrize("sinks", [None, normal(4, seed=5)], ids=["no sinks", "sinks"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option(options, dtype, sinks):
    check_gradients(*qkv(L=L, S=S, dtype=dtype), sinks=sinks, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("E", [1, 8, 40, 64, 72, 80, 96, 112, 127, 128, 192, 256])
def test_every_head_size(E, dtype):
    check_gradients(*qkv(batch=(1,), heads=2, kv_heads=1, L=70, S=70, E=E, dtype=dtype), causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        *((1, 1), (15, 15), (64, 64), (65, 65), (129, 129), (300, 300)),
        *((8, 12), (33, 65), (40, 17), (1, 100), (100, 1), (1, 5000), (5, 0)),
    ],
)
def test_every_length(queries, keys, causal, dtype):
    check_gradients(*qkv(batch=(1,), L=queries, S=keys, E=16, dtype=dtype), causal=causal)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (6, 3), (7, 1), (14, 2)])
def test_query_heads_of_a_group_add_to_one_gradient(heads, kv_heads, dtype):
    check_gradients(*qkv(heads=heads, kv_heads=kv_heads, L=40, S=90, dtype=dtype), causal=True)


@pytest.mark.parametrize("batch", [(), (2, 3)], ids=["rank 3", "rank 5"])
def test_every_rank(batch):
    check_gradients(*qkv(batch=batch, L=33, S=65))


def test_strided_inputs_and_cotangents():
    q, k, v = (mx.contiguous(x.swapaxes(1, 2)).swapaxes(1, 2) for x in qkv(L=33, S=65))
    column_first = mx.contiguous(k.swapaxes(-1, -2)).swapaxes(-1, -2)
    check_gradients(q, column_first, v, causal=True)
    # The cotangent of a sum is one number with strides of 0.
    summed = mx.grad(lambda v: flash_attention(q, k, v).sum())(v)
    ones = mx.vjp(lambda v: [flash_attention(q, k, v)], [v], [mx.ones(q.shape)])[1][0]
    assert mx.array_equal(summed, ones)


def test_one_array_may_be_query_key_and_value():
    x = qkv(heads=2, kv_heads=2, L=70)[0]
    dq, dk, dv = check_gradients(x, x, x, causal=True)
    ones = mx.vjp(
        lambda x: list(flash_attention(x, x, x, causal=True, return_lse=True)),
        [x],
        [normal(*x.shape, seed=11), normal(*x.shape[:-1], seed=12)],
    )[1][0]
    assert mx.allclose(ones, dq + dk + dv, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("scale", [30.0, 1000.0, 1e5])
def test_large_scores_cost_the_digits_that_the_saved_lse_lacks(scale, dtype):
    """P = exp(score - LSE) has the absolute rounding error of the float32 LSE as a relative one."""
    q, k, v = qkv(L=33, S=65, dtype=dtype)
    largest = mx.abs(flash_attention(q, k, v, scale=scale, return_lse=True)[1]).max().item()
    check_gradients(q, k, v, scale=scale, extra=largest * 2**-23)


def test_scores_beyond_any_precision_of_the_lse_have_finite_gradients():
    for grad in mx.grad(lambda *x: flash_attention(*x, scale=1e9).sum(), argnums=(0, 1, 2))(*qkv()):
        assert mx.isfinite(grad).all()


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (3,), (2, 3)], ids=str)
def test_only_the_requested_gradients_are_returned(wanted):
    inputs = (*qkv(L=33, S=65), normal(4))
    cotangents = [normal(*inputs[0].shape, seed=11), normal(*inputs[0].shape[:-1], seed=12)]
    everything = gradients(flash_attention, inputs, cotangents)

    def loss(q, k, v, sinks):
        out, lse = flash_attention(q, k, v, sinks=sinks, return_lse=True)
        return (out * cotangents[0]).sum() + (lse * cotangents[1]).sum()

    got = mx.grad(loss, argnums=wanted)(*inputs)
    got = got if isinstance(got, tuple) else (got,)
    for n, grad in zip(wanted, got, strict=True):
        assert mx.array_equal(grad, everything[n])


def test_a_sink_of_minus_infinity_has_no_gradient():
    q, k, v = qkv(L=5, S=7)
    sinks = mx.array([0.5, -mx.inf, 1.0, -mx.inf])
    grad = mx.grad(lambda sinks: flash_attention(q, k, v, sinks=sinks).square().sum())(sinks)
    assert grad[0] != 0
    assert mx.array_equal(grad[1::2], mx.zeros(2))
