"""One pass or two: which of them computes a gradient, with the same bits."""

import mlx.core as mx
import pytest

from ...support.cases import lengths, normal, qkv, random_mask
from ...support.native import attention, explain_attention, last_run
from ...support.tolerance import same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

ONE_THREAD, MANY_THREADS = 1, 64  # one pass with the former, two with the latter


def gradients(inputs, threads, argnums=None, **options):
    """Of query, key and value, and of sinks as the fourth input; asserts that the plan was followed."""
    q = inputs[0]
    cotangents = [normal(*q.shape, dtype=q.dtype, seed=5), normal(*q.shape[:-1], seed=6)]

    def attend(*x):
        given = list(inputs)
        for n, array in zip(wanted, x, strict=True):
            given[n] = array
        sinks = {"sinks": given[3]} if len(given) == 4 else {}
        return list(attention(*given[:3], **sinks, **options, threads=threads))

    wanted = range(len(inputs)) if argnums is None else argnums
    result = mx.vjp(attend, [inputs[n] for n in wanted], cotangents)[1]
    mx.eval(result)
    return result


def schedule(inputs, threads, **options):
    return explain_attention(*inputs[:3], **options, threads=threads)["backward_schedule"]


PACKED = {"cu_seqlens_q": lengths(0, 70, 70, 71, 271), "cu_seqlens_k": lengths(0, 90, 99, 99, 400)}
OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window and softcap": {"window": (70, 3), "softcap": 3.0},
    "negative scale": {"scale": -0.1},
    "mask": {"mask": random_mask(2, 4, 271, 400)},
    "lengths": {"q_lens": lengths(200, 0), "kv_start": lengths(3, 0), "kv_lens": lengths(300, 64)},
    "packed": {**PACKED, "causal": True, "window": 100},
}


@pytest.mark.parametrize("E", [16, 40, 144])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_one_pass_has_the_bits_of_two(options, E):
    q, k, v = qkv(batch=(2,), heads=4, kv_heads=2, L=271, S=400, E=E)
    if "cu_seqlens_q" in options:
        q, k, v = (x[0].swapaxes(0, 1) for x in (q, k, v))
    inputs = (q, k, v, normal(4, seed=9))
    results = []
    for threads, expected in ((ONE_THREAD, "one_pass"), (MANY_THREADS, "two_passes")):
        assert schedule(inputs, threads, **options) == expected
        results.append(gradients(inputs, threads, **options))
        assert last_run()["backward_schedule"] == expected
    assert same_bits(*results)


@pytest.mark.parametrize(
    ("batch", "kv_heads", "threads", "expected"),
    [
        (1, 1, 1, "one_pass"),
        (1, 1, 2, "two_passes"),
        (1, 2, 2, "one_pass"),
        (1, 3, 2, "two_passes"),
        (1, 8, 2, "one_pass"),
        (3, 3, 2, "one_pass"),
        (1, 8, 16, "two_passes"),
        (0, 2, 2, "one_pass"),
    ],
)
def test_one_pass_needs_tasks_for_all_threads(batch, kv_heads, threads, expected):
    inputs = qkv(batch=(batch,), heads=2 * kv_heads, kv_heads=kv_heads, L=9, E=8)
    assert schedule(inputs, threads) == expected


@pytest.mark.parametrize(
    ("sizes", "window", "expected"),
    [
        ((300, 300), None, "one_pass"),
        ((64, 3000, 64), None, "two_passes"),
        ((64, 800, 3000, 64, 3000, 800), None, "one_pass"),
        ((3000, 3000, 1000), None, "one_pass"),
        ((3000, 3000, 1000), 64, "one_pass"),
        ((3000, 3000, 3000), 64, "two_passes"),
        ((0, 0), None, "one_pass"),
    ],
)
def test_one_pass_needs_packed_sequences_that_balance(sizes, window, expected):
    """The work of a sequence is its visible tiles."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    x = mx.zeros((ends[-1], 1, 8))
    options = {"cu_seqlens_q": lengths(*ends), "causal": window is not None, "window": window}
    assert schedule((x, x, x), 2, **options) == expected


def test_two_passes_where_gradients_are_missing_or_short():
    inputs = qkv(batch=(1,), heads=2, kv_heads=2, L=40)
    for argnums in ((0,), (1, 2)):
        gradients(inputs, ONE_THREAD, argnums)
        assert last_run()["backward_schedule"] == "two_passes"
    for dtype in (mx.float16, mx.bfloat16):
        assert schedule([x.astype(dtype) for x in inputs], ONE_THREAD) == "two_passes"


def test_sequences_may_have_keys_but_no_queries():
    """Their dK and dV are 0, whatever their memory held."""
    q, k, v = normal(9, 2, 16), *normal(2, 80, 2, 16, seed=1)
    options = {"cu_seqlens_q": lengths(0, 0, 9), "cu_seqlens_k": lengths(0, 70, 80)}
    _, dk, dv = gradients((q, k, v), ONE_THREAD, **options)
    assert last_run()["backward_schedule"] == "one_pass"
    assert not dk[:70].any()
    assert not dv[:70].any()
    assert dk[70:].any()
