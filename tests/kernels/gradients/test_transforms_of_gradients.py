"""compile, shapeless compile, vmap, streams and threads leave a gradient as it is; it has no derivative."""

import itertools
import threading

import mlx.core as mx
import pytest

from tiny_llm.attention import attention_reference, flash_attention

from ...support.cases import lengths, normal, qkv, random_mask
from ...support.tolerance import GRADIENT_FLOOR, same_bits

REFUSAL = r"^second derivative of flash_attention is not supported; use attention_reference$"


def attend(q, k, v, **options):
    return flash_attention(q, k, v, causal=True, **options)


def gradients(q, k, v, **options):
    return mx.grad(lambda *x: attend(*x, **options).square().sum(), argnums=(0, 1, 2))(q, k, v)


def assert_close(got, want):
    assert mx.abs(got - want).max() <= 2 * GRADIENT_FLOOR[mx.float32] * mx.abs(want).max()


def test_a_compiled_gradient_is_the_gradient():
    inputs = qkv(L=70, S=131)
    assert same_bits(gradients(*inputs), mx.compile(gradients)(*inputs))


def test_value_and_grad_of_a_compiled_step():
    q, k, v = qkv(L=33, S=65)
    step = mx.compile(mx.value_and_grad(lambda q: attend(q, k, v).square().mean()))
    losses = []
    for _ in range(5):
        loss, grad = step(q)
        losses.append(loss.item())
        q = q - 20 * grad
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.99 * losses[0]


def test_a_shapeless_gradient_serves_every_length():
    compiled = mx.compile(gradients, shapeless=True)
    for L, S in ((33, 65), (1, 300), (70, 70), (40, 17)):
        inputs = qkv(L=L, S=S)
        assert same_bits(gradients(*inputs), compiled(*inputs))


@pytest.mark.parametrize("mapped", [x for x in itertools.product([False, True], repeat=3) if any(x)], ids=str)
def test_vmap_of_a_gradient_over_each_set_of_inputs(mapped):
    """An input that is not mapped has a gradient for each entry all the same."""
    inputs = [qkv(L=33, S=65, seed=seed) for seed in range(3)]
    stacked = [mx.stack(x) if m else x[0] for m, x in zip(mapped, zip(*inputs, strict=True), strict=True)]
    together = mx.vmap(gradients, in_axes=tuple(0 if m else None for m in mapped))(*stacked)
    for i in range(3):
        alone = gradients(*(x[i] if m else x for m, x in zip(mapped, stacked, strict=True)))
        assert same_bits(alone, [x[i] for x in together])


@pytest.mark.parametrize("axis", [1, 2])
def test_vmap_over_the_cotangent_alone(axis):
    q, k, v = qkv(L=9, S=17)
    d_out = normal(*q.shape[:axis], 3, *q.shape[axis:])
    gradient = lambda d: mx.vjp(lambda *x: [attend(*x)], [q, k, v], [d])[1]  # noqa: E731
    together = mx.vmap(gradient, in_axes=axis)(d_out)
    for i in range(3):
        assert same_bits(gradient(mx.take(d_out, i, axis=axis)), [x[i] for x in together])


@pytest.mark.parametrize("name", ["mask", "sinks", "q_lens", "kv_start", "kv_lens"])
def test_vmap_of_a_gradient_over_an_option(name):
    values = {
        "mask": mx.stack([random_mask(33, 65, seed=i) for i in range(3)]),
        "sinks": normal(3, 4),
        "q_lens": mx.array([[33, 1], [5, 0], [7, 33]]),
        "kv_start": mx.array([[0, 1], [65, 64], [7, 33]]),
        "kv_lens": mx.array([[0, 65], [5, 64], [7, 33]]),
    }[name]
    inputs = qkv(L=33, S=65)
    together = mx.vmap(lambda x: gradients(*inputs, **{name: x}))(values)
    for i in range(3):
        assert same_bits(gradients(*inputs, **{name: values[i]}), [x[i] for x in together])


@pytest.mark.parametrize("shared", [True, False], ids=["one for all", "one for each"])
def test_the_gradient_of_a_vmap_reaches_the_sinks(shared):
    q, k, v = (mx.stack([x, x + 1, x - 1]) for x in qkv(L=9, S=17))
    sinks = normal(4) if shared else normal(3, 4)

    def loss(function):
        one = lambda q, k, v, sinks: function(q, k, v, sinks=sinks)  # noqa: E731
        mapped = mx.vmap(one, in_axes=(0, 0, 0, None if shared else 0))
        return lambda sinks: mapped(q, k, v, sinks).square().sum()

    got, want = (mx.grad(loss(function))(sinks) for function in (flash_attention, attention_reference))
    assert got.shape == sinks.shape
    assert_close(got, want)


def test_lengths_that_are_computed_later():
    q, k, v = qkv(L=33, S=65)
    late = lengths(20, 5) + mx.array([1, 2], dtype=mx.int32)
    assert same_bits(gradients(q, k, v, kv_lens=lengths(21, 7)), gradients(q, k, v, kv_lens=late))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_derivative_of_the_gradient_is_refused_by_the_gradient_itself(mode):
    """The cotangent reaches the gradient's operation without passing through attention."""
    q, k, v = qkv()

    def gradient(d_out):
        return mx.vjp(lambda q: [attend(q, k, v)], [q], [d_out])[1]

    with pytest.raises(NotImplementedError, match=REFUSAL):
        (mx.vjp if mode == "reverse" else mx.jvp)(gradient, [q], [q])


def test_gradients_on_two_streams():
    inputs = qkv(L=130)
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    results = []
    for i in range(6):
        with mx.stream(streams[i % 2]):
            results.append(gradients(inputs[0] + i, *inputs[1:]))
    mx.eval(results)
    for i, result in enumerate(results):
        assert same_bits(result, gradients(inputs[0] + i, *inputs[1:]))


def test_gradients_on_two_threads():
    inputs = qkv(L=130)
    mx.eval(inputs)
    want = gradients(*inputs)
    mx.eval(want)
    results = []

    def work():
        with mx.stream(mx.new_stream(mx.cpu)):
            for _ in range(5):
                got = gradients(*inputs)
                mx.eval(got)
                results.append(got)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 10
    assert all(same_bits(want, got) for got in results)
