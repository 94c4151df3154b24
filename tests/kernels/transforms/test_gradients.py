"""dQ, dK, dV, dsinks and the gradient through LSE against finite differences of the oracle."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import attention_reference, explain, flash_attention

from ...support.attention import oracle
from ...support.attention.check import expected, numpy_options
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv, random_mask
from ...support.finite_differences import gradient
from ...support.tolerance import GRADIENT_FLOOR, assert_close, to_float64

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 3},
    "softcap": {"softcap": 1.5, "scale": 1.0},
    "bool mask": {"mask": random_mask(5, 7, keep=0.5)},
    "float mask": {"mask": normal(2, 1, 5, 7, seed=8)},
    "lengths": {"causal": True, "q_lens": lengths(5, 3), "kv_start": lengths(0, 2), "kv_lens": lengths(7, 4)},
    "hidden rows": {"causal": True, "kv_lens": lengths(3, 0)},
}


def check_gradients(q, k, v, sinks=None, **options):
    """Compares the gradients of <O, a> + <LSE, b> for random a, b with those of the oracle."""
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    a, b = normal(*q.shape, dtype=q.dtype, seed=11), normal(*q.shape[:-1], seed=12)
    sees_nothing = expected(q, k, v, sinks=sinks, **options).lse == -np.inf

    def native(q, k, v, sinks=None):
        out, lse = flash_attention(q, k, v, sinks=sinks, **options, return_lse=True)
        return (out * a).astype(mx.float32).sum() + mx.where(mx.array(sees_nothing), 0, lse * b).sum()

    def exact(q, k, v, sinks=None):
        out, lse = oracle.attention(q, k, v, sinks=sinks, **numpy_options(options))
        return float((out * to_float64(a)).sum() + np.where(sees_nothing, 0, lse * to_float64(b)).sum())

    got = mx.grad(native, argnums=tuple(range(len(inputs))))(*inputs)
    want = gradient(exact, *map(to_float64, inputs))
    for name, grad, exact_grad in zip(("dQ", "dK", "dV", "dsinks"), got, want, strict=False):
        assert_close(grad, exact_grad, floor=GRADIENT_FLOOR[q.dtype] * np.abs(exact_grad).max(), what=name)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients(options):
    check_gradients(*qkv(heads=4, kv_heads=2, L=5, S=7, E=4), **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_with_sinks(options):
    check_gradients(*qkv(heads=4, kv_heads=2, L=5, S=7, E=4), sinks=normal(4, seed=5), **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_gradients_in_every_dtype(dtype):
    check_gradients(*qkv(heads=4, kv_heads=2, L=5, S=7, E=4, dtype=dtype), causal=True)


def test_a_row_without_keys_has_no_gradient():
    q, k, v = qkv(L=70, S=33)
    dq = mx.grad(lambda q: flash_attention(q, k, v, causal=True).sum())(q)
    assert not dq[:, :, :37].any()
    assert dq[:, :, 37:].any()


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 40}], ids=str)
def test_gradients_over_many_tiles_equal_those_of_the_reference(options):
    def gradients(function):
        return mx.grad(lambda *x: function(*x, **options).square().sum(), argnums=(0, 1, 2))(*inputs)

    inputs = qkv(L=70, S=131)
    for got, want in zip(gradients(flash_attention), gradients(attention_reference), strict=True):
        assert mx.abs(got - want).max() <= 2 * GRADIENT_FLOOR[mx.float32] * mx.abs(want).max()


@pytest.mark.usefixtures("on_the_cpu")
def test_explain_has_the_source_of_gradients():
    assert explain(flash_attention, *qkv()).backward_path == "cpu.backward"
    assert explain(flash_attention, *qkv(L=5, E=257)).backward_path == "reference"
    assert explain(attention_reference, *qkv()).backward_path == "reference"


def test_a_mask_has_no_gradient():
    q, k, v = qkv()
    with pytest.raises(NotImplementedError, match=r"^flash_attention: the gradient with respect to mask"):
        mx.eval(mx.grad(lambda mask: flash_attention(q, k, v, mask=mask).sum())(mx.zeros((33, 33))))


def test_the_gradient_of_a_mask_is_refused_before_anything_is_evaluated():
    q, k, v = qkv()
    loss = lambda mask: flash_attention(q, k, v, mask=mask).sum()  # noqa: E731
    for transform in (mx.grad, mx.value_and_grad):
        with pytest.raises(NotImplementedError, match=r"^flash_attention: the gradient with respect to mask"):
            transform(loss)(mx.zeros((33, 33)))


def test_a_second_derivative_is_refused():
    q, k, v = qkv()
    gradient_of_q = mx.grad(lambda q: flash_attention(q, k, v).sum())
    with pytest.raises(
        NotImplementedError,
        match=r"^second derivative of flash_attention is not supported; use attention_reference$",
    ):
        mx.eval(mx.grad(lambda q: gradient_of_q(q).sum())(q))


def test_the_reference_has_a_second_derivative():
    q, k, v = qkv(L=5, S=7, E=4)
    gradient_of_q = mx.grad(lambda q: attention_reference(q, k, v).square().sum())
    second = mx.grad(lambda q: gradient_of_q(q).square().sum())(q)
    assert mx.isfinite(second).all()
    assert second.any()


def test_forward_mode_is_refused():
    q, k, v = qkv()
    with pytest.raises(NotImplementedError, match=r"^flash_attention: jvp"):
        mx.jvp(lambda q: flash_attention(q, k, v), [q], [q])
