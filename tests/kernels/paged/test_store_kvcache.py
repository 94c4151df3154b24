"""`store_kvcache` writes tokens to their slots in place, and nothing else."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention, paged_attention, store_kvcache

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.late_errors import fails_whenever_evaluated
from ...support.refusal import case_id, fitting_arguments, refused
from ...support.tolerance import to_float64

NAME = "store_kvcache"
P, PAGE, H, D = 5, 7, 2, 40


def pools(dtype=mx.float32, layout="PSHE"):
    shape = (P, PAGE, H, D) if layout == "PSHE" else (P, H, PAGE, D)
    caches = normal(*shape, dtype=dtype, seed=8), normal(*shape, dtype=dtype, seed=9)
    mx.eval(*caches)
    return caches


@pytest.mark.parametrize("layout", ["PSHE", "PHSE"])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_tokens_go_to_their_slots_and_nothing_else_changes(dtype, layout):
    slots = [33, 0, -1, 7, 6, 34]
    key, value = normal(len(slots), H, D, dtype=dtype), normal(len(slots), H, D, dtype=dtype, seed=1)
    caches = pools(dtype, layout)
    wanted = []
    for cache, tokens in zip(caches, (key, value), strict=True):
        want = to_float64(cache)
        by_slot = want if layout == "PSHE" else want.swapaxes(1, 2)
        for t, slot in enumerate(slots):
            if slot >= 0:
                by_slot[slot // PAGE, slot % PAGE] = to_float64(tokens)[t]
        wanted.append(want)
    stored = store_kvcache(key, value, *caches, mx.array(slots), PAGE, layout=layout)
    for got, want in zip(stored, wanted, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(to_float64(got), want)


def test_the_pool_is_not_copied():
    caches = tuple(mx.zeros((4000, 16, H, D)) for _ in range(2))
    key, value = normal(3, H, D), normal(3, H, D)
    mx.eval(*caches, key, value)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    stored = store_kvcache(key, value, *caches, mx.array([1, 2, 3]))
    mx.eval(*stored)
    assert mx.get_peak_memory() - before < 2**16
    assert mx.array_equal(caches[0][0, 1:4], key)  # the same memory


def test_many_tokens_on_several_threads():
    count, page = 5000, 16
    slots = np.random.default_rng(0).permutation(6000)[:count]
    key, value = normal(count, H, D), normal(count, H, D, seed=1)
    caches = mx.zeros((375, page, H, D)), mx.zeros((375, page, H, D))
    for stored, tokens in zip(store_kvcache(key, value, *caches, mx.array(slots)), (key, value), strict=True):
        flat = stored.reshape(-1, H, D)
        assert mx.array_equal(flat[mx.array(slots)], tokens)
        assert mx.sum(mx.any(flat != 0, axis=(1, 2))).item() == count


def test_tokens_with_any_strides():
    key = normal(H, 2 * D, 6)
    turned = key.swapaxes(0, 2)[:, ::2, :]
    turned = turned.swapaxes(1, 2)  # [6, H, D], no axis is dense
    k_cache, _ = store_kvcache(turned, turned, *pools(), mx.arange(6))
    assert mx.array_equal(k_cache.reshape(-1, H, D)[:6], turned)


def test_no_tokens():
    caches = pools()
    stored = store_kvcache(mx.zeros((0, H, D)), mx.zeros((0, H, D)), *caches, mx.array([], dtype=mx.int32))
    assert mx.array_equal(stored[0], caches[0])


def test_attention_reads_what_was_stored():
    """A prompt and two steps of decoding, with keys and values written before attention."""
    key, value, query = (normal(1, h, 35, D, seed=h) for h in (H, H + 1, 4))
    value = value[:, :H]
    caches, table = pools(), mx.array([[3, 0, 4, 1, 2]])
    for begin, end in ((0, 33), (33, 34), (34, 35)):
        slots = mx.array([table[0, t // PAGE].item() * PAGE + t % PAGE for t in range(begin, end)])
        rows = (x[0, :, begin:end].swapaxes(0, 1) for x in (key, value))
        caches = store_kvcache(*rows, *caches, slots)
        out = paged_attention(
            query[0, :, begin:end].swapaxes(0, 1), *caches, table, mx.array([end]), layout="PSHE",
            causal=True, cu_seqlens_q=[0, end - begin],
        )  # fmt: skip
        want = flash_attention(query[:, :, begin:end], key[:, :, :end], value[:, :, :end], causal=True)
        assert mx.array_equal(out, want[0].swapaxes(0, 1))


WRONG_SLOTS = pytest.mark.parametrize(
    "slots", [[0, P * PAGE, 1], [0, -2, 1], [0, 1, 2**40], [4, 9, 4]], ids=str
)


@WRONG_SLOTS
def test_wrong_slots_are_refused_at_the_call(slots):
    with refused("slot_mapping", function=NAME):
        store_kvcache(mx.ones((3, H, D)), mx.ones((3, H, D)), *pools(), mx.array(slots))


@WRONG_SLOTS
def test_wrong_slots_are_found_before_anything_is_written(slots):
    caches = pools()
    before = [to_float64(x) for x in caches]

    def call():
        late = mx.array(slots, dtype=mx.int64) * 1
        return list(store_kvcache(mx.ones((3, H, D)), mx.ones((3, H, D)), *caches, late))

    fails_whenever_evaluated(call, "slot_mapping", NAME)
    for cache, kept in zip(caches, before, strict=True):
        np.testing.assert_array_equal(to_float64(cache), kept)


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("key", {"key": mx.int32}),
        ("value", {"value": (3, 1, D)}),
        ("value", {"value": mx.float16}),
        ("k_cache", {"k_cache": mx.bfloat16}),
        ("k_cache", {"k_cache": (P, PAGE, H)}),
        ("k_cache", {"key": (3, H, 8), "value": (3, H, 8)}),
        ("v_cache", {"v_cache": (P + 1, PAGE, H, D)}),
        ("slot_mapping", {"slot_mapping": mx.array([1, 2])}),
        ("slot_mapping", {"slot_mapping": mx.array([1.0, 2.0, 3.0])}),
        ("block_size", {"block_size": 256}),
        ("layout", {"layout": "HPSE"}),
    ],
    ids=case_id,
)
def test_wrong_arguments(argument, wrong):
    sizes = {"key": (3, H, D), "value": (3, H, D), "k_cache": (P, PAGE, H, D), "v_cache": (P, PAGE, H, D)}
    with refused(argument, function=NAME):
        store_kvcache(**fitting_arguments(sizes, {"slot_mapping": mx.array([0, 1, 2]), **wrong}))


def test_caches_that_cannot_be_written_in_place_are_refused():
    tokens = mx.ones((3, H, D)), mx.ones((3, H, D))
    one, other = pools()
    repeated = mx.broadcast_to(mx.zeros((1, PAGE, H, D)), (P, PAGE, H, D))
    mx.eval(repeated)
    with refused("k_cache", function=NAME):
        store_kvcache(*tokens, repeated, other, mx.array([0, 1, 2]))
    with refused("v_cache", function=NAME):
        store_kvcache(*tokens, one, one, mx.array([0, 1, 2]))
