"""grad, compile, shapeless compile, vmap and streams give the same results as the plain call."""

import itertools

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, flash_attention

from ...support.attention.check import compare
from ...support.cases import lengths, normal, qkv, random_mask
from ...support.tolerance import GRADIENT_FLOOR


def attend(q, k, v):
    return flash_attention(q, k, v, causal=True)


def gradients(q, k, v):
    return mx.grad(lambda *x: attend(*x).square().sum(), argnums=(0, 1, 2))(q, k, v)


def test_compile():
    inputs = qkv(L=33, S=65)
    assert mx.array_equal(mx.compile(attend)(*inputs), attend(*inputs))


def test_compile_of_a_gradient_and_gradient_of_a_compiled_function():
    inputs = qkv(L=33, S=65)
    plain = gradients(*inputs)
    compiled = mx.compile(gradients)(*inputs)
    inside = mx.grad(lambda *x: mx.compile(attend)(*x).square().sum(), argnums=(0, 1, 2))(*inputs)
    for a, b, c in zip(plain, compiled, inside, strict=True):
        assert mx.allclose(a, b, rtol=1e-5, atol=1e-6)
        assert mx.allclose(a, c, rtol=1e-5, atol=1e-6)


def test_shapeless_compile_serves_every_length():
    compiled = mx.compile(lambda *x: flash_attention(*x, causal=True, return_lse=True), shapeless=True)
    for L, S in ((33, 65), (1, 300), (70, 70), (40, 17)):
        q, k, v = qkv(L=L, S=S)
        compare(*compiled(q, k, v), q, k, v, causal=True)


def grown(**shapes):
    """Arguments (q, k, v) of one batch entry with 2 query heads; `shapes` replaces some shapes."""
    return [mx.zeros(shapes.get(name, (1, 2, 16, 8))) for name in "qkv"]


@pytest.mark.parametrize(
    "shapes",
    [
        {"k": (1, 2, 4096, 8)},
        {"k": (1, 3, 16, 8), "v": (1, 3, 16, 8)},
        {"k": (2, 2, 16, 8)},
        {"q": (1, 2, 16, 300), "k": (1, 2, 16, 300), "v": (1, 2, 16, 300)},
        {"v": (1, 2, 16, 4)},
        {"k": (1, 0, 16, 8), "v": (1, 0, 16, 8)},
    ],
    ids=str,
)
def test_shapeless_compile_refuses_shapes_that_the_call_would(shapes):
    compiled = mx.compile(attend, shapeless=True)
    mx.eval(compiled(*grown()))
    with pytest.raises((ValueError, RuntimeError), match=r"^flash_attention: "):
        mx.eval(compiled(*grown(**shapes)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("mask", mx.zeros((16, 16))), ("sinks", mx.zeros(2))],
    ids=["mask", "sinks"],
)
def test_shapeless_compile_refuses_captured_options_that_no_longer_fit(name, value):
    compiled = mx.compile(lambda *x: flash_attention(*x, **{name: value}), shapeless=True)
    mx.eval(compiled(*grown()))
    wider = (3, 4, 4096, 8)
    with pytest.raises(ValueError, match=f"^flash_attention: {name}: got"):
        mx.eval(compiled(*grown(q=wider, k=wider, v=wider)))


def test_calls_that_differ_in_an_option_are_not_merged():
    """compile merges equal nodes; nodes with different parameters are not equal."""
    q, k, v = qkv(L=33, S=33)
    variants = ({}, {"scale": 0.3}, {"causal": True}, {"window": 5}, {"window": 6}, {"softcap": 2.0},
                {"sinks": normal(4)}, {"mask": random_mask(33, 33)})  # fmt: skip
    together = mx.compile(lambda q, k, v: [flash_attention(q, k, v, **options) for options in variants])(
        q, k, v
    )
    for options, out in zip(variants, together, strict=True):
        assert mx.array_equal(out, flash_attention(q, k, v, **options))
    assert not any(mx.allclose(a, b, atol=1e-3) for a, b in itertools.combinations(together, 2))


@pytest.mark.parametrize("mapped", [x for x in itertools.product([False, True], repeat=3) if any(x)], ids=str)
def test_vmap_over_each_set_of_inputs(mapped):
    """Three of each mapped input on a new first axis, with grouped heads and a batch axis of its own."""
    inputs = [qkv(L=33, S=65, seed=seed) for seed in range(3)]
    stacked = [mx.stack(x) if m else x[0] for m, x in zip(mapped, zip(*inputs, strict=True), strict=True)]
    axes = tuple(0 if m else None for m in mapped)
    out, lse = mx.vmap(lambda *x: flash_attention(*x, causal=True, return_lse=True), in_axes=axes)(*stacked)
    for i in range(3):
        q, k, v = (x[i] if m else x for m, x in zip(mapped, stacked, strict=True))
        compare(out[i], lse[i], q, k, v, causal=True)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_vmap_over_any_axis(axis):
    inputs = [qkv(batch=(), L=33, S=65, seed=seed) for seed in range(2)]
    stacked = [mx.stack(x, axis=axis) for x in zip(*inputs, strict=True)]
    out = mx.vmap(attend, in_axes=axis, out_axes=axis)(*stacked)
    for i, (q, k, v) in enumerate(inputs):
        assert mx.array_equal(mx.take(out, i, axis=axis), attend(q, k, v))


@pytest.mark.parametrize("name", ["mask", "sinks", "q_lens", "kv_start", "kv_lens"])
@pytest.mark.parametrize("inputs_too", [False, True], ids=["option only", "with inputs"])
def test_vmap_over_an_option(name, inputs_too):
    values = {
        "mask": mx.stack([random_mask(33, 65, seed=i) for i in range(3)]),
        "sinks": normal(3, 4),
        "q_lens": mx.array([[33, 1], [5, 0], [7, 33]]),
        "kv_start": mx.array([[0, 1], [65, 64], [7, 33]]),
        "kv_lens": mx.array([[0, 65], [5, 64], [7, 33]]),
    }[name]
    q, k, v = (mx.stack(x) for x in zip(*(qkv(L=33, S=65, seed=i) for i in range(3)), strict=True))
    if not inputs_too:
        q, k, v = q[0], k[0], v[0]
    axis = 0 if inputs_too else None
    attend_with = lambda q, k, v, x: flash_attention(q, k, v, causal=True, **{name: x}, return_lse=True)  # noqa: E731
    out, lse = mx.vmap(attend_with, in_axes=(axis, axis, axis, 0))(q, k, v, values)
    for i in range(3):
        one = [x[i] if inputs_too else x for x in (q, k, v)]
        compare(out[i], lse[i], *one, causal=True, **{name: values[i]})


def test_vmap_of_vmap_and_of_a_gradient():
    q, k, v = qkv(batch=(2, 3), L=9, S=17)
    assert mx.array_equal(mx.vmap(mx.vmap(attend))(q, k, v), attend(q, k, v))
    mapped = mx.vmap(mx.vmap(lambda *x: mx.grad(lambda q: attend(q, *x[1:]).sum())(x[0])))(q, k, v)
    plain = mx.grad(lambda q: attend(q, k, v).sum())(q)
    assert mx.allclose(mapped, plain, rtol=1e-5, atol=1e-6)


def test_vmap_with_lengths_and_gradient_of_the_sum():
    q, k, v = (mx.stack([x, x + 1]) for x in qkv(L=9, S=17))
    kv_lens = lengths(17, 4)

    def loss(function):
        return lambda q: mx.vmap(lambda *x: function(*x, kv_lens=kv_lens))(q, k, v).square().sum()

    got, want = (mx.grad(loss(function))(q) for function in (flash_attention, attention_reference))
    assert mx.abs(got - want).max() <= 2 * GRADIENT_FLOOR[mx.float32] * mx.abs(want).max()


def test_chained_calls_are_one_graph():
    q, k, v = qkv(L=65, kv_heads=4)
    x = q
    for _ in range(5):
        x = attend(x, k, v)
    y = q
    for _ in range(5):
        y = attend(y, k, v)
        mx.eval(y)
    assert mx.array_equal(x, y)


def test_two_streams():
    q, k, v = qkv(L=130)
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    results = [flash_attention(q + i, k, v, causal=True, stream=streams[i % 2]) for i in range(6)]
    mx.eval(results)
    for i, out in enumerate(results):
        assert mx.array_equal(out, flash_attention(q + i, k, v, causal=True))


def test_the_default_stream_is_used():
    q, k, v = qkv(L=33)
    with mx.stream(mx.new_stream(mx.cpu)):
        inside = attend(q, k, v)
    assert mx.array_equal(inside, attend(q, k, v))
