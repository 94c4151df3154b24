"""A short step as one native operation: bitwise equal to the operations one by one, caches too."""

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.models import cached_attention
from tiny_llm.models.cached_attention import attend_flash
from tiny_llm.models.qkv import QKV
from tiny_llm.paged_kv_cache import TinyKvPagedCache, TinyKvPagedPool
from tiny_llm.positional_encoding import RoPE

from ..support.attention.cached import new_tokens
from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.refusal import case_id
from ..support.rows import graph_of

pytestmark = pytest.mark.usefixtures("on_the_cpu")

HEADS, KV_HEADS, SIZE = 4, 2, 64
ROPES = [RoPE(SIZE, 4000, traditional=traditional) for traditional in (False, True)]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def full(length, dtype=mx.float32, rows=1):
    cache = TinyKvFullCache()
    if length:
        keys, values = (normal(rows, KV_HEADS, length, SIZE, dtype=dtype, seed=seed) for seed in (7, 8))
        cache.update_and_fetch(keys, values)
    return cache


def batch(lengths, dtype=mx.float32):
    cache = BatchingKvCache(len(lengths), 4000)
    for slot, length in enumerate(lengths):
        if length is not None:
            cache.add_request(full(length, dtype), slot)
    return cache


def tokens_of(rows, L, offsets, dtype=mx.float32, rope=ROPES[0]):
    return QKV(*new_tokens(rows, L, HEADS, KV_HEADS, SIZE, dtype), rope, offsets)


def requests_of(cache):
    return [cache] if isinstance(cache, TinyKvFullCache) else [x for x in cache.kv_caches if x is not None]


def contents(cache):
    """The number of tokens of every request, and the tokens."""
    return [(request.offset, request.key_values) for request in requests_of(cache)]


def same_contents(one, other):
    for (offset, pair), (expected, same) in zip(one, other, strict=True):
        assert offset == expected
        assert (pair is None) == (same is None)
        for x, y in zip(pair or (), same or (), strict=True):
            assert mx.array_equal(x, y)


@pytest.fixture
def native_calls(monkeypatch):
    """The results of the native operation, one for each call."""
    results = []
    attend = cached_attention._attend_natively

    def recorded(tokens, cache):
        attended = attend(tokens, cache)
        if attended is not None:
            results.append(attended)
        return attended

    monkeypatch.setattr(cached_attention, "_attend_natively", recorded)
    return results


def both_ways(make_cache, calls, steps, monkeypatch):
    """Steps natively, and with one operation after the other, each with its own cache."""
    native, plain = make_cache(), make_cache()
    for tokens in steps:
        got = attend_flash(tokens, native, "causal")
        assert calls, "the native operation was not taken"
        with monkeypatch.context() as patch:
            patch.setattr(cached_attention, "is_native", lambda mask: False)
            calls.clear()
            expected = attend_flash(tokens, plain, "causal")
            assert not calls
        assert mx.array_equal(got, expected)
        assert got.shape == expected.shape
        same_contents(contents(native), contents(plain))


@each_dtype
@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("length", [0, 30, 253, 3000])
def test_one_request(length, rope, dtype, native_calls, monkeypatch):
    """Steps that fill a block of the cache and go beyond it."""
    offsets = [length, length + 1, length + 4, length + 12, length + 44]
    steps = [
        tokens_of(1, L, start, dtype, rope) for L, start in zip((1, 3, 8, 32, 200), offsets, strict=True)
    ]  # fmt: skip
    both_ways(lambda: full(length, dtype), native_calls, steps, monkeypatch)


@each_dtype
def test_several_rows_of_one_length(dtype, native_calls, monkeypatch):
    steps = [tokens_of(3, 2, 30, dtype), tokens_of(3, 1, [32, 5, 7], dtype)]
    both_ways(lambda: full(30, dtype, rows=3), native_calls, steps, monkeypatch)


@each_dtype
@pytest.mark.parametrize("lengths", [(5, 9, 12), (None, 255, None, 3000, 0, None), (0, 0)], ids=str)
def test_a_batch_with_idle_slots(lengths, dtype, native_calls, monkeypatch):
    offsets = [length or 0 for length in lengths]
    steps = [tokens_of(len(lengths), L, [s + add for s in offsets], dtype) for L, add in ((1, 0), (4, 1))]
    both_ways(lambda: batch(lengths, dtype), native_calls, steps, monkeypatch)


def test_without_the_extension(native_calls):
    tokens, cache, plain = tokens_of(2, 1, [5, 9]), batch([5, 9]), batch([5, 9])
    expected = attend_flash(tokens, cache, "causal")
    assert native_calls.pop() is expected
    with graph_of("tiny_llm.models.cached_attention"):
        assert mx.array_equal(attend_flash(tokens, plain, "causal"), expected)
    assert not native_calls
    same_contents(contents(cache), contents(plain))


@pytest.mark.parametrize("paged_slot", [0, 1])
def test_a_batch_with_two_kinds_of_caches_attends_one_by_one(paged_slot, native_calls):
    """The native operation supports dense caches only; it must not have changed either cache."""
    mixed, plain = batch([5, 9]), batch([5, 9])
    paged = TinyKvPagedCache(TinyKvPagedPool(page_size=4))
    paged.update_and_fetch(*mixed.kv_caches[paged_slot].key_values)
    mixed.add_request(paged, paged_slot)
    tokens = tokens_of(2, 3, [5, 9])
    got = attend_flash(tokens, mixed, "causal")
    assert not native_calls
    assert mx.array_equal(got, attend_flash(tokens, plain, "causal"))
    assert native_calls
    same_contents(contents(mixed), contents(plain))


class Negated(TinyKvFullCache):
    """A subclass with other behaviour: it returns the negative of every value."""

    def update_and_fetch(self, key, value, mask_length=None, mask=None):
        keys, values, length, mask = super().update_and_fetch(key, value, mask_length, mask)
        return keys, -values, length, mask


@pytest.mark.parametrize("slots", [None, 1, 2], ids=["alone", "a batch of one", "with an ordinary one"])
def test_overridden_methods_of_a_dense_cache_are_called(slots, native_calls):
    """The native operation would write to its arrays and skip the overridden method."""
    derived, rows = Negated(), slots or 1
    plain = batch([0] * rows)
    cache = derived
    if slots:
        cache = batch([0] * slots)
        cache.add_request(derived, 0)
    tokens = tokens_of(rows, 3, 0)
    got = attend_flash(tokens, cache, "causal")
    assert not native_calls
    expected = attend_flash(tokens, plain, "causal")
    assert mx.array_equal(got[0], -expected[0])
    assert mx.array_equal(got[1:], expected[1:])
    same_contents(contents(cache), contents(plain))


def test_arrays_fetched_before_a_step_do_not_change():
    cache = full(30)
    keys, values = cache.key_values
    kept = [mx.array(keys), mx.array(values)]
    mx.eval(kept, keys, values)
    mx.eval(attend_flash(tokens_of(1, 1, 30), cache, "causal"))
    cache.rewind(5)
    mx.eval(attend_flash(tokens_of(1, 4, 26), cache, "causal"))
    assert mx.array_equal(keys, kept[0])
    assert mx.array_equal(values, kept[1])


def wrong(**changes):
    tokens = tokens_of(2, 1, 0)
    for name, value in changes.items():
        setattr(tokens, name, value)
    return tokens


def zeros(*shape, dtype=mx.float32):
    return mx.zeros(shape, dtype=dtype)


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": -1},
        {"offsets": [0, 4000]},
        {"offsets": [0, 0, 0]},
        {"key": zeros(2, 1, KV_HEADS, SIZE, dtype=mx.float16)},
        {"value": zeros(2, 1, KV_HEADS, SIZE, dtype=mx.float16)},
        {"value": zeros(2, 2, KV_HEADS, SIZE)},
        {"query": zeros(2, 1, 3, SIZE)},
        {"query": zeros(2, 2, HEADS, SIZE)},
        {"query": zeros(3, 1, HEADS, SIZE)},
        {"key": zeros(2, 1, 3, SIZE), "value": zeros(2, 1, 3, SIZE)},
        {"key": zeros(2, 1, KV_HEADS, 32), "value": zeros(2, 1, KV_HEADS, 32)},
        {"rope": RoPE(32, 4000)},
    ],
    ids=case_id,
)
@pytest.mark.parametrize(
    "make_cache", [lambda: full(30, rows=2), lambda: full(0), lambda: batch([5, 30]), lambda: batch([0, 0])]
)
def test_wrong_tokens_leave_every_cache_as_it_was(make_cache, changes):
    cache = make_cache()
    before = contents(cache)
    with pytest.raises(ValueError, match=r": got .+, expected .+"):
        attend_flash(wrong(**changes), cache, "causal")
    same_contents(contents(cache), before)


@pytest.mark.parametrize("last", [mx.float16, 32], ids=str)
def test_a_request_that_cannot_take_its_tokens_leaves_the_others_as_they_were(last):
    """The last one holds tokens of another type, or too many of them."""
    cache = BatchingKvCache(2, 60)
    cache.add_request(full(5), 0)
    cache.add_request(full(60) if last == 32 else full(9, last), 1)
    before = contents(cache)
    with pytest.raises(ValueError, match=r"Cache: (key|id): got .+, expected .+"):
        attend_flash(tokens_of(2, 1, 5), cache, "causal")
    same_contents(contents(cache), before)
