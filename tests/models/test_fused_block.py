"""A block on a few tokens as one native operation: bitwise equal to its layers one by one, caches too."""

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import BatchingKvCache, TinyKvFullCache
from tiny_llm.models import cpu_block, dispatch_model

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.models.blocks import HIDDEN, block_of, by_layers, full, step
from ..support.models.checkpoints import checkpoint, each_family
from ..support.rows import graph_of

pytestmark = pytest.mark.usefixtures("on_the_cpu")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def batch(block, lengths, dtype=mx.float32):
    cache = BatchingKvCache(len(lengths), 4000)
    for slot, length in enumerate(lengths):
        if length is not None:
            cache.add_request(full(block, length, dtype), slot)
    return cache


def contents(cache):
    requests = [cache] if isinstance(cache, TinyKvFullCache) else cache.kv_caches
    return [(request.offset, *request.key_values) for request in requests if request is not None]


def assert_same_contents(one, other):
    for (offset, *pair), (expected, *same) in zip(contents(one), contents(other), strict=True):
        assert offset == expected
        assert all(mx.array_equal(x, y) for x, y in zip(pair, same, strict=True))


@each_dtype
@each_family
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("length", [0, 30, 253, 3000])
def test_one_request(length, bits, family, dtype):
    """Steps that fill a block of the cache and go beyond it."""
    block = block_of(family, dtype, bits=bits)
    native, plain = full(block, length, dtype), full(block, length, dtype)
    for L in (1, 3, 8, 32):
        x = normal(1, L, HIDDEN, dtype=dtype, seed=L)
        expected = by_layers(block, x, plain, plain.offset)
        got, taken = step(block, x, native, native.offset)
        assert taken
        assert got.dtype == dtype
        assert mx.array_equal(got, expected)
        assert_same_contents(native, plain)


@each_dtype
@each_family
@pytest.mark.parametrize("lengths", [(5, 9, 12), (None, 255, None, 3000, 0, None)], ids=str)
def test_a_batch_with_idle_slots(lengths, family, dtype):
    block = block_of(family, dtype)
    native, plain = batch(block, lengths, dtype), batch(block, lengths, dtype)
    for L, add in ((1, 0), (4, 1)):
        x = normal(len(lengths), L, HIDDEN, dtype=dtype, seed=L)
        offset = [(length or 0) + add for length in lengths]
        expected = by_layers(block, x, plain, offset)
        got, taken = step(block, x, native, offset)
        assert taken
        assert mx.array_equal(got, expected)
        assert_same_contents(native, plain)


@each_dtype
def test_several_rows_of_one_cache(dtype):
    block = block_of(dtype=dtype)
    native, plain = full(block, 30, dtype, rows=3), full(block, 30, dtype, rows=3)
    x = normal(3, 2, HIDDEN, dtype=dtype)
    got, taken = step(block, x, native, 30)
    assert taken
    assert mx.array_equal(got, by_layers(block, x, plain, 30))
    assert_same_contents(native, plain)


def test_a_step_that_is_refused_changes_nothing():
    block, cache = block_of(), TinyKvFullCache()
    x = normal(1, 1, HIDDEN)
    with pytest.raises(ValueError, match="offset"):
        cpu_block.run_on_cpu(block, x, 4096, cache, "causal", False)
    assert cache.offset == 0
    assert cache.key_values is None


def test_arrays_fetched_before_a_step_do_not_change():
    block, cache, x = block_of(), None, normal(1, 1, HIDDEN)
    cache = full(block, 30)
    keys, values = cache.key_values
    kept = [mx.array(keys), mx.array(values)]
    mx.eval(kept, keys, values)
    mx.eval(step(block, x, cache, 30)[0])
    cache.rewind(5)
    mx.eval(step(block, x, cache, 26)[0])
    assert mx.array_equal(keys, kept[0])
    assert mx.array_equal(values, kept[1])


@each_family
def test_a_model_runs_it_for_a_prompt_and_a_step(family):
    """The logits are those of the layers."""
    weights = checkpoint(family)
    model, ids = dispatch_model("a folder", weights, 2, enable_flash_attn=True), mx.array([[3]])
    cache, plain = model.create_kv_cache(), model.create_kv_cache()
    prompt = mx.arange(33)[None]
    logits = [model(prompt, 0, cache), model(ids, 33, cache)]
    assert all(block.fused is not None for block in model.layers_inner)
    with graph_of("tiny_llm.models.cpu_block"):
        assert mx.array_equal(model(prompt, 0, plain), logits[0])
        assert mx.array_equal(model(ids, 33, plain), logits[1])


@each_family
def test_gradients_are_those_of_the_layers(family):
    """With respect to x the operation has its own; with respect to weights the layers run."""
    block, x = block_of(family), normal(1, 3, HIDDEN)

    def total(run):
        return lambda x: (run(block, x, full(block, 5), 5) * normal(1, 3, HIDDEN, seed=4)).sum()

    def natively(*arguments):
        y, taken = step(*arguments)
        assert taken
        return y

    assert mx.array_equal(mx.grad(total(natively))(x), mx.grad(total(by_layers))(x))

    def of_norm(run):
        def loss(weight):
            kept, block.input_layernorm.weight = block.input_layernorm.weight, weight
            try:
                return (run(block, x, full(block, 5), 5) ** 2).sum()
            finally:
                block.input_layernorm.weight = kept

        return mx.grad(loss)(block.input_layernorm.weight)

    assert mx.array_equal(of_norm(lambda *arguments: step(*arguments)[0]), of_norm(by_layers))
