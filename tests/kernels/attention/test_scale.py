"""A scale is a number or a scalar array; a derivative with respect to it is right or refused."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import attention_reference, explain, flash_attention

from ...support.attention import oracle
from ...support.attention.check import compare, expected, numpy_options
from ...support.cases import DTYPE_IDS, DTYPES, normal, qkv
from ...support.finite_differences import gradient
from ...support.tolerance import FLOOR, GRADIENT_FLOOR, assert_close, to_float64

FUNCTIONS = pytest.mark.parametrize(
    "function", [flash_attention, attention_reference], ids=lambda f: f.__name__
)


def squares(*inputs, **options):
    """The sum of the squared outputs in float64."""
    return float(np.square(oracle.attention(*inputs, **options).out).sum())


def scale_refused():
    return pytest.raises(NotImplementedError, match=r"^flash_attention: .*scale")


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("scale", [mx.array(0.5), mx.array(2), mx.array(0.5, dtype=mx.bfloat16)], ids=str)
def test_a_scale_in_an_array_is_the_number_in_it(scale, dtype):
    inputs = qkv(dtype=dtype)
    results = [flash_attention(*inputs, scale=s, return_lse=True) for s in (scale, scale.item())]
    assert all(mx.array_equal(a, b) for a, b in zip(*results, strict=True))
    want = compare(*results[0], *inputs, scale=scale.item())
    assert explain(flash_attention, *inputs, scale=scale) == explain(flash_attention, *inputs)
    reference = attention_reference(*inputs, scale=scale)
    assert reference.dtype == dtype
    assert_close(
        reference,
        want.out,
        floor=FLOOR[dtype],
        reference=lambda: attention_reference(*inputs, scale=scale.item()),
    )


@FUNCTIONS
def test_a_scale_array_changes_no_other_gradient(function):
    q, k, v = qkv(L=5, S=7, E=4)
    (want,) = gradient(lambda q: squares(q, to_float64(k), to_float64(v), scale=0.5), to_float64(q))
    got = mx.grad(lambda q: function(q, k, v, scale=mx.array(0.5)).square().sum())(q)
    assert_close(got, want, floor=GRADIENT_FLOOR[mx.float32] * np.abs(want).max())


def test_vmap_over_the_query_keeps_it():
    q, k, v = qkv()

    def attend(q):
        return flash_attention(q, k, v, scale=mx.array(0.25), return_lse=True)

    for out, lse, query in zip(*mx.vmap(attend)(mx.stack([q, 2 * q])), (q, 2 * q), strict=True):
        compare(out, lse, query, k, v, scale=0.25)


@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 2.0}, {"mask": normal(33, 33)}], ids=len)
@pytest.mark.parametrize("transform", [lambda f: f, mx.compile], ids=["plain", "compiled"])
def test_the_reference_has_its_gradient(transform, options):
    q, k, v = qkv()
    exact = [to_float64(x) for x in (q, k, v)]
    (slope,) = gradient(lambda s: squares(*exact, scale=s, **numpy_options(options)), np.array(0.5))

    def loss(scale):
        return attention_reference(q, k, v, scale=scale, **options).square().sum()

    assert_close(
        transform(mx.grad(loss))(mx.array(0.5)), slope, floor=GRADIENT_FLOOR[mx.float32] * abs(slope)
    )


def test_the_reference_maps_over_scales():
    q, k, v = qkv()
    mapped = mx.vmap(lambda s: attention_reference(q, k, v, scale=s))(mx.array([0.25, 0.5]))
    for result, scale in zip(mapped, (0.25, 0.5), strict=True):
        assert_close(result, expected(q, k, v, scale=scale).out, floor=FLOOR[mx.float32])


@pytest.mark.parametrize("which", [0, 1], ids=["output", "lse"])
@pytest.mark.parametrize("derived", [lambda s: s, lambda s: 2 * s], ids=["itself", "derived"])
def test_the_fused_call_refuses_its_gradient(which, derived):
    q, k, v = qkv()

    def loss(scale):
        return flash_attention(q, k, v, scale=derived(scale), return_lse=True)[which].sum()

    with scale_refused():
        mx.grad(loss)(mx.array(0.5))
    with pytest.raises(NotImplementedError):
        mx.jvp(loss, [mx.array(0.5)], [mx.array(1.0)])


@pytest.mark.parametrize("transform", [mx.compile, mx.vmap], ids=["compile", "vmap"])
def test_the_fused_call_refuses_a_traced_scale(transform):
    q, k, v = qkv()
    traced = transform(lambda scales: flash_attention(q, k, v, scale=scales.sum()))
    with scale_refused():
        traced(mx.array([[0.5]]))


@FUNCTIONS
@pytest.mark.parametrize("dtypes", [(mx.float32, mx.float16), (mx.int32, mx.int32)], ids=str)
def test_the_inputs_are_checked_with_a_scale_array(function, dtypes):
    query, key, value = qkv()
    inputs = (query.astype(dtypes[0]), key.astype(dtypes[1]), value)
    with pytest.raises((ValueError, NotImplementedError), match=rf"^{function.__name__}: (query|key)"):
        function(*inputs, scale=mx.array(0.5))
