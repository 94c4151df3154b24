"""Gradients of packed sequences: exact, deterministic, linear in memory, and within every transformation."""

import itertools
import threading

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import explain, flash_attention_varlen

from ...support.attention import oracle
from ...support.attention.gradient_oracle import gradients as exact_gradients
from ...support.attention.packed import packed
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.native import last_run
from ...support.tolerance import GRADIENT_FLOOR, OUTPUT_ROUNDING, assert_close, same_bits, to_float64

pytestmark = pytest.mark.usefixtures("on_the_cpu")

SIZES = [1, 70, 0, 33, 5], [131, 70, 7, 20, 0]  # a decoded row, a prompt, no rows, hidden rows, no keys


def gradients(q, k, v, cu_q, cu_k, **options):
    def loss(q, k, v):
        out = flash_attention_varlen(q, k, v, cu_q, cu_k, causal=True, **options)
        return out.astype(mx.float32).square().sum()

    return mx.grad(loss, argnums=(0, 1, 2))(q, k, v)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"causal": True, "window": 9}, {"window": (3, 5)}, {"softcap": 2.0},
     {"causal": True, "window": 40, "softcap": 3.0, "scale": 0.4}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("with_sinks", [False, True], ids=["no sinks", "sinks"])
def test_the_exact_gradient_of_each_sequence(options, dtype, with_sinks):
    """Of the output and of the log-sum-exp, against float64."""
    call = packed(*SIZES, dtype=dtype)
    d_out = normal(*call.query.shape, dtype=dtype, seed=11)
    d_lse = normal(*call.query.shape[:2], seed=12)
    sinks = [normal(4, seed=5)] if with_sinks else []

    def attend(q, k, v, *sinks):
        return list(
            flash_attention_varlen(
                q, k, v, *call[3:], return_lse=True, sinks=sinks[0] if sinks else None,
                on_fallback="error", **options,
            )
        )  # fmt: skip

    got = mx.vjp(attend, [*call[:3], *sinks], [d_out, d_lse])[1]
    mx.eval(got)
    assert last_run()["path"] == "cpu.backward"
    want = [np.zeros(x.shape) for x in (*call[:3], *sinks)]
    for rows, keys in call.parts():
        arrays = (to_float64(x)[0] for x in call.alone(rows, keys))
        cotangents = (to_float64(x[rows].swapaxes(0, 1)) for x in (d_out, d_lse))
        exact = exact_gradients(
            *arrays, *cotangents, sinks=to_float64(sinks[0]) if sinks else None, **options
        )
        for whole, part, one in zip(want, (rows, keys, keys), exact, strict=False):
            whole[part] = one.swapaxes(0, 1)
        if sinks:
            want[3] += exact.dsinks
    for name, grad, exact in zip(("dQ", "dK", "dV", "dsinks"), got, want, strict=False):
        assert_close(grad, exact, floor=GRADIENT_FLOOR[dtype] * np.abs(exact).max(), what=name)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_dsinks_of_few_rows_is_exact_for_the_saved_output(dtype):
    """Its terms may cancel, as here: then the rounding of the saved output is large beside dsinks."""
    call = packed([7, 2, 0, 7], heads=1, kv_heads=1, E=40, dtype=dtype, seed=161)
    d_out = normal(*call.query.shape, dtype=dtype, seed=10161)
    d_lse = normal(*call.query.shape[:2], seed=20161)
    sinks = normal(1, seed=30161)
    options = {"causal": True, "softcap": 5.0}

    def attend(sinks):
        return list(flash_attention_varlen(*call, **options, sinks=sinks, return_lse=True))

    (saved, _), (got,) = mx.vjp(attend, [sinks], [d_out, d_lse])
    exact = by_rounding = size = 0
    for rows, keys in call.parts():
        arrays = [to_float64(x)[0] for x in call.alone(rows, keys)]
        cotangents = [to_float64(x[rows].swapaxes(0, 1)) for x in (d_out, d_lse)]
        one = exact_gradients(*arrays, *cotangents, sinks=to_float64(sinks), **options)
        out, lse = oracle.attention(*arrays, sinks=to_float64(sinks), **options)
        rounding = (cotangents[0] * (to_float64(saved[rows].swapaxes(0, 1)) - out)).sum(axis=-1)
        exact, size = exact + one.dsinks, size + one.dsinks_size
        by_rounding = by_rounding - (np.exp(to_float64(sinks)[:, None] - lse) * rounding).sum(axis=-1)
    assert_close(got, exact + by_rounding, floor=GRADIENT_FLOOR[mx.float32] * size.max(), what="dsinks")
    assert_close(got, exact, floor=OUTPUT_ROUNDING[dtype] * size.max(), what="dsinks")


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_twenty_runs_give_the_same_bits(dtype):
    call = packed(*SIZES, dtype=dtype)
    first = gradients(*call, window=50)
    assert all(same_bits(first, gradients(*call, window=50)) for _ in range(20))


def test_compiled_gradients_serve_every_set_of_lengths():
    compiled = mx.compile(gradients)
    shapeless = mx.compile(gradients, shapeless=True)
    for sizes in (SIZES, ([33], [65]), ([1, 1], [300, 5]), ([0, 0], [0, 7]), ([], [])):
        q, k, v, *begins = packed(*sizes)
        begins = [mx.array(x, dtype=mx.int32) for x in begins]
        want = gradients(q, k, v, *begins)
        assert same_bits(want, compiled(q, k, v, *begins))
        assert same_bits(want, shapeless(q, k, v, *begins))


def test_a_second_derivative_and_forward_mode_are_refused():
    q, k, v, *begins = packed([5, 7])
    first = mx.grad(lambda q: flash_attention_varlen(q, k, v, *begins).sum())
    alternative = "is not supported; use attention_reference on each sequence$"
    name = "flash_attention_varlen"
    with pytest.raises(NotImplementedError, match=rf"^second derivative of {name} {alternative}"):
        mx.grad(lambda q: first(q).sum())(q)
    with pytest.raises(NotImplementedError, match=rf"^{name}: jvp {alternative}"):
        mx.jvp(lambda q: flash_attention_varlen(q, k, v, *begins), [q], [q])
    with pytest.raises(NotImplementedError, match=r"^flash_attention_varlen: scale: got a gradient"):
        mx.grad(lambda s: flash_attention_varlen(q, k, v, *begins, scale=s).sum())(mx.array(0.3))


def test_two_streams_and_two_threads():
    call = packed(*SIZES)
    mx.eval(*call[:3])
    want = gradients(*call)
    mx.eval(want)
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    results = []
    for i in range(6):
        with mx.stream(streams[i % 2]):
            results.append(gradients(*call))
    mx.eval(results)

    def work():
        with mx.stream(mx.new_stream(mx.cpu)):
            for _ in range(5):
                got = gradients(*call)
                mx.eval(got)
                results.append(got)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16
    assert all(same_bits(want, got) for got in results)


@pytest.mark.parametrize("options", [{}, {"window": 100}], ids=str)
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_memory_doubles_when_every_length_doubles(options, kv_heads):
    saved, peaks = [], []
    for N in (1000, 2000, 4000):
        call = packed([N, N // 10, N // 2], heads=4, kv_heads=kv_heads)
        mx.eval(*call[:3])
        saved.append(explain(flash_attention_varlen, *call, causal=True, **options).saved_bytes)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(gradients(*call, **options))
        peaks.append(mx.get_peak_memory() - before)
    for sizes in (saved, peaks):
        assert all(1.9 <= b / a <= 2.1 for a, b in itertools.pairwise(sizes)), sizes
