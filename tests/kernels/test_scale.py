"""A scale is a number or an array without axes; a derivative with respect to it is right or refused."""

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, explain, flash_attention

from ..support.cases import DTYPE_IDS, DTYPES, normal, qkv

FUNCTIONS = pytest.mark.parametrize(
    "function", [flash_attention, attention_reference], ids=lambda f: f.__name__
)


def scale_refused():
    return pytest.raises(NotImplementedError, match=r"^flash_attention: .*scale")


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("scale", [mx.array(0.5), mx.array(2), mx.array(0.5, dtype=mx.bfloat16)], ids=str)
def test_a_scale_in_an_array_is_the_number_in_it(scale, dtype):
    inputs = qkv(dtype=dtype)
    results = (flash_attention(*inputs, scale=s, return_lse=True) for s in (scale, scale.item()))
    assert all(mx.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert explain(flash_attention, *inputs, scale=scale) == explain(flash_attention, *inputs)
    got, want = (attention_reference(*inputs, scale=s) for s in (scale, scale.item()))
    assert got.dtype == dtype
    assert mx.allclose(got, want, rtol=1e-2 if dtype != mx.float32 else 1e-5, atol=1e-3)


@FUNCTIONS
def test_it_leaves_the_other_gradients_alone(function):
    q, k, v = qkv()
    got, want = (
        mx.grad(lambda q, s=scale: function(q, k, v, scale=s).square().sum())(q)
        for scale in (mx.array(0.5), 0.5)
    )
    assert mx.allclose(got, want, rtol=1e-5, atol=1e-6)
    assert want.any()


def test_vmap_over_the_query_keeps_it():
    q, k, v = qkv()
    mapped = mx.vmap(lambda q: flash_attention(q, k, v, scale=mx.array(0.5)))(mx.stack([q, 2 * q]))
    assert mx.allclose(mapped[0], flash_attention(q, k, v, scale=0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"causal": True, "softcap": 2.0}, {"mask": normal(33, 33)}], ids=len)
def test_the_reference_has_its_gradient(options):
    q, k, v = qkv()

    def loss(scale):
        return attention_reference(q, k, v, scale=scale, **options).square().sum()

    step = 1e-2
    slope = (loss(0.5 + step) - loss(0.5 - step)) / (2 * step)
    for derivative in (mx.grad(loss), mx.compile(mx.grad(loss))):
        assert mx.allclose(derivative(mx.array(0.5)), slope, rtol=5e-3)
    assert slope.item() != 0


def test_the_reference_maps_over_scales():
    q, k, v = qkv()
    scales = mx.array([0.25, 0.5])
    mapped = mx.vmap(lambda s: attention_reference(q, k, v, scale=s))(scales)
    for result, scale in zip(mapped, scales.tolist(), strict=True):
        assert mx.allclose(result, attention_reference(q, k, v, scale=scale), rtol=1e-5, atol=1e-6)


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
def test_the_fused_call_refuses_one_whose_value_is_not_known(transform):
    q, k, v = qkv()
    traced = transform(lambda scales: flash_attention(q, k, v, scale=scales.sum()))
    with scale_refused():
        traced(mx.array([[0.5]]))


@FUNCTIONS
@pytest.mark.parametrize("dtypes", [(mx.float32, mx.float16), (mx.int32, mx.int32)], ids=str)
def test_the_inputs_are_checked_beside_an_array(function, dtypes):
    query, key, value = qkv()
    inputs = (query.astype(dtypes[0]), key.astype(dtypes[1]), value)
    with pytest.raises((ValueError, NotImplementedError), match=rf"^{function.__name__}: (query|key)"):
        function(*inputs, scale=mx.array(0.5))
