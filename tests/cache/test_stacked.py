"""The caches of several requests in one array: each row attends to what it would attend to alone."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.cache.batching import BatchingKvCache
from tiny_llm.cache.full import BLOCK, TinyKvFullCache
from tiny_llm.cache.stacked import Columns, StackedKvCache

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.tolerance import assert_close, to_float64

pytestmark = pytest.mark.usefixtures("on_the_cpu")

HEADS, KV_HEADS, SIZE = 4, 2, 32
SLOTS, LONGEST = 4, 4000
ROUNDING = 2e-6
KINDS = [StackedKvCache, BatchingKvCache]
each_kind = pytest.mark.parametrize("kind", KINDS)


def prefilled(length, seed=0, dtype=mx.float32, heads=KV_HEADS):
    cache = TinyKvFullCache()
    if length:
        cache.update_and_fetch(
            *(normal(1, heads, length, SIZE, dtype=dtype, seed=100 * seed + i) for i in (1, 2))
        )
    return cache


def new_tokens(new, seed, rows=SLOTS, dtype=mx.float32):
    shapes = ((HEADS, 3), (KV_HEADS, 4), (KV_HEADS, 5))
    return [normal(rows, heads, new, SIZE, dtype=dtype, seed=100 * seed + i) for heads, i in shapes]


def attend(query, keys, values, mask):
    return mx.fast.scaled_dot_product_attention(query, keys, values, scale=SIZE**-0.5, mask=mask)


def attended(cache, new, seed):
    query, key, value = new_tokens(new, seed)
    keys, values, _, mask = cache.update_and_fetch(key, value, new, "causal")
    return attend(query, keys, values, mask)


class Both:
    """A stacked and a batching cache that get the same requests and tokens."""

    def __init__(self):
        self.caches = [kind(SLOTS, LONGEST) for kind in KINDS]
        self.steps = 0

    def add(self, slot, length):
        for cache in self.caches:
            cache.add_request(prefilled(length, seed=slot), slot)

    def remove(self, slot):
        for cache in self.caches:
            cache.remove_request(slot)

    def step(self, new=1):
        """Each active row attends to the same; an idle row of the stacked cache is finite."""
        self.steps += 1
        ours, theirs = (attended(cache, new, seed=self.steps) for cache in self.caches)
        for slot, active in enumerate(self.caches[1].kv_caches):
            if active is None:
                assert mx.isfinite(ours[slot]).all()
            else:
                assert_close(ours[slot], to_float64(theirs[slot]), floor=ROUNDING)


def test_requests_join_grow_leave_and_join_again():
    both = Both()
    both.add(2, 5)
    both.step()
    both.add(0, BLOCK - 2)
    for new in (1, 3, 1, 7, 1):  # beyond a block
        both.step(new)
    both.add(3, 0)
    both.step()
    both.remove(0)  # the longest
    for new in (1, 2):
        both.step(new)
    both.add(0, 3)
    both.add(1, 2 * BLOCK + 9)
    for new in (1, 1, 40):
        both.step(new)
    for slot in range(SLOTS):
        both.remove(slot)
    both.add(1, 4)
    both.step()


def test_a_request_replaces_the_one_in_its_slot():
    both = Both()
    both.add(1, 30)
    both.add(2, 9)
    both.step()
    both.add(1, 3)
    for new in (1, 4):
        both.step(new)


@pytest.mark.parametrize("length", [0, 3])
def test_nan_of_an_earlier_request_does_not_reach_the_next_one_in_its_slot(length):
    """Hidden columns have the weight 0, and 0 times NaN is NaN."""
    both = Both()
    both.add(2, 5)
    for cache in both.caches:
        broken = TinyKvFullCache()
        broken.update_and_fetch(*(mx.full((1, KV_HEADS, 20, SIZE), mx.nan) for _ in range(2)))
        cache.add_request(broken, 1)
        cache.remove_request(1)
    both.add(1, length)
    both.step()
    both.step(2)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_tokens_and_mask_of_each_row(dtype):
    cache, lengths = StackedKvCache(3, 9), (4, None, 2)
    known = {slot: prefilled(length, seed=slot, dtype=dtype) for slot, length in ((0, 4), (2, 2))}
    before = {slot: [mx.array(x) for x in request.key_values] for slot, request in known.items()}
    for slot, request in known.items():
        cache.add_request(request, slot)
    _, key, value = new_tokens(2, seed=1, rows=3, dtype=dtype)
    *fetched, length, mask = cache.update_and_fetch(key, value)
    assert length is None
    assert mask.tolist() == [
        [[[j < 5 + i for j in range(6)] for i in range(2)]],
        [[[j < 1 + i for j in range(6)] for i in range(2)]],
        [[[j < 3 + i for j in range(6)] for i in range(2)]],
    ]
    for side, stored in enumerate(fetched):
        assert stored.dtype == dtype
        for slot in (0, 2):
            tokens = mx.concatenate([before[slot][side][0], (key, value)[side][slot]], axis=1)
            assert mx.array_equal(stored[slot, :, : lengths[slot] + 2], tokens)


def test_a_request_that_was_added_is_empty_and_its_memory_is_free():
    cache, length = StackedKvCache(2, LONGEST), 3000
    cache.add_request(prefilled(length), 0)
    before = mx.get_active_memory()
    request = prefilled(length, seed=1)
    mx.eval(request.storage)
    kept = [mx.array(x) for x in request.key_values]
    size = 2 * 4 * KV_HEADS * length * SIZE
    assert mx.get_active_memory() - before >= size
    cache.add_request(request, 1)
    assert request.offset == 0
    assert request.key_values is None
    assert request.storage is None
    assert mx.get_active_memory() - before - sum(x.nbytes for x in kept) < size / 16
    for x, stored in zip(kept, cache.storage, strict=True):
        assert mx.array_equal(stored[1:, :, :length], x)


def test_released_requests_leave_no_memory():
    before = mx.get_active_memory()
    cache = StackedKvCache(2, LONGEST)
    cache.add_request(prefilled(3000), 0)
    assert mx.get_active_memory() - before >= 2 * 2 * 4 * KV_HEADS * 3000 * SIZE
    cache.release()
    assert cache.storage is None
    assert mx.get_active_memory() - before < 2**16
    with pytest.raises(ValueError, match="no active request"):
        cache.update_and_fetch(*new_tokens(1, 0, rows=2)[1:])


def test_steps_write_in_place():
    cache, length = StackedKvCache(2, LONGEST), 3 * BLOCK - 20
    for slot in range(2):
        cache.add_request(prefilled(length, seed=slot), slot)
    tokens = new_tokens(1, 1, rows=2)
    keys, values, _, mask = cache.update_and_fetch(*tokens[1:])  # which grows the array
    mx.eval(keys, values, mask, cache.storage)
    del keys, values
    addresses = [np.asarray(x).__array_interface__["data"][0] for x in cache.storage]
    size = sum(x.nbytes for x in cache.storage)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for _ in range(10):
        keys, values, _, _ = cache.update_and_fetch(*tokens[1:])
        mx.eval(keys.sum(), values.sum())
        del keys, values
    assert mx.get_peak_memory() - before < size / 4
    assert [np.asarray(x).__array_interface__["data"][0] for x in cache.storage] == addresses


def test_all_layers_share_the_columns_of_a_step():
    columns = Columns()
    layers = [StackedKvCache(2, 9, columns) for _ in range(2)]
    for layer in layers:
        layer.add_request(prefilled(3), 1)
    masks = []
    for seed in range(2):
        masks.append([layer.update_and_fetch(*new_tokens(1, seed, rows=2)[1:])[3] for layer in layers])
    assert masks[0][0] is masks[0][1]
    assert masks[1][0] is masks[1][1]
    assert [mask[0].shape for mask in masks] == [(2, 1, 1, 4), (2, 1, 1, 5)]
    layers[0].remove_request(1)
    layers[0].add_request(prefilled(2), 0)
    alone = layers[0].update_and_fetch(*new_tokens(1, 2, rows=2)[1:])[3]
    assert alone.tolist() == [[[[True, True, True]]], [[[True, False, False]]]]


@pytest.fixture(params=KINDS)
def batch(request):
    """Two requests of two tokens and of nine, the most."""
    cache = request.param(3, 9)
    cache.add_request(prefilled(2), 0)
    cache.add_request(prefilled(8), 2)
    return cache


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cache: cache.add_request(prefilled(1), 3), "id: got 3, expected 0 to 2"),
        (lambda cache: cache.add_request(prefilled(1), -1), "id: got -1, expected 0 to 2"),
        (lambda cache: cache.remove_request(7), "id: got 7, expected 0 to 2"),
        (lambda cache: cache.remove_request(1), "id: got 1, expected a slot with a request"),
        (
            lambda cache: cache.add_request(prefilled(10), 1),
            "id: got 10 tokens for slot 1, expected at most max_seq_len, 9",
        ),
        (
            lambda cache: cache.update_and_fetch(*new_tokens(2, 0, rows=3)[1:]),
            "id: got 10 tokens for slot 2, expected at most max_seq_len, 9",
        ),
        (lambda cache: cache.update_and_fetch(*new_tokens(1, 0, rows=2)[1:]), "key: got 2 rows, expected 3"),
        (
            lambda cache: cache.update_and_fetch(*new_tokens(1, 0, rows=3)[1:], 1, "causl"),
            "mask: got 'causl', expected None or 'causal'",
        ),
        (
            lambda cache: cache.update_and_fetch(*new_tokens(1, 0, rows=3)[1:], 1, mx.zeros((1, 9))),
            "mask: got an array, expected None or 'causal'",
        ),
        (
            lambda cache: cache.update_and_fetch(normal(3, KV_HEADS, 1, SIZE), normal(3, KV_HEADS, 1, 9)),
            f"value: got (3, {KV_HEADS}, 1, 9), expected (3, {KV_HEADS}, 1, {SIZE}), the shape of key",
        ),
    ],
)
def test_refusals_are_those_of_the_batching_cache(batch, call, message):
    with pytest.raises((ValueError, NotImplementedError)) as refused:
        call(batch)
    assert str(refused.value) == f"{type(batch).__name__}: {message}"
    _, key, value = new_tokens(1, 0, rows=3)  # as if it had not been called
    mask = batch.update_and_fetch(key, value)[3]
    assert mask.shape == (3, 1, 1, 9)


@each_kind
@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_sizes_are_checked(kind, size):
    for arguments in ((size, 9), (3, size)):
        with pytest.raises((ValueError, TypeError), match=rf"^{kind.__name__}: max_\w+: got .+, expected"):
            kind(*arguments)


@pytest.mark.parametrize(
    "tokens",
    [normal(3, 1, 1, SIZE), normal(3, KV_HEADS, 1, 8), normal(3, KV_HEADS, 1, SIZE, dtype=mx.float16)],
)
def test_tokens_unlike_those_before_are_refused(tokens):
    cache = StackedKvCache(3, 9)
    cache.add_request(prefilled(2), 0)
    with pytest.raises(ValueError, match=r"^StackedKvCache: key: got .+, expected .+ as before$"):
        cache.update_and_fetch(tokens, tokens)
    request = TinyKvFullCache()
    request.update_and_fetch(tokens[:1], tokens[:1])
    with pytest.raises(ValueError, match=r"^StackedKvCache: key: got .+, expected .+ as before$"):
        cache.add_request(request, 1)
    assert request.offset == 1
