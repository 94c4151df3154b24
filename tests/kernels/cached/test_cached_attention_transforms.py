"""Derivatives and compiled graphs of attention with caches equal those of its operations one by one."""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.attention.cached import KV_HEADS, SIZE, attend, case, filled_cache, flat, one_by_one, table_of
from ...support.cases import DTYPE_IDS, DTYPES, normal

pytestmark = pytest.mark.filterwarnings("ignore:flash_attention. falling back")  # heads of 300
cached_attention = load_extension().cached_attention
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def test_each_result_can_be_evaluated_alone_and_again():
    tokens, caches = case([21, 9], 3)
    expected = flat(attend(*tokens, caches, [21, 9]))
    mx.eval(expected)
    for i in reversed(range(5)):
        result = flat(attend(*tokens, caches, [21, 9]))[i]
        assert mx.array_equal(result, expected[i])
    results = flat(attend(*tokens, caches, [21, 9]))
    mx.eval(results[3])
    mx.eval(results)
    mx.eval(results)
    for x, same in zip(results, expected, strict=True):
        assert mx.array_equal(x, same)


@each_dtype
@pytest.mark.parametrize("size", [16, 300])
@pytest.mark.parametrize("traditional", [False, True])
def test_gradients_equal_those_of_the_operations(traditional, size, dtype):
    """With respect to query, key, value and both arrays of each cache, from all results."""
    tokens, caches = case([6, None, 3], 3, size=size, dtype=dtype)
    table = table_of(size)
    arrays = [*tokens, *(x for cache in caches if cache for x in cache[:2])]

    def by(function, *places):
        def listed(query, key, value, k0, v0, k1, v1):
            given = [(k0, v0, 6), None, (k1, v1, 3)]
            offset = [6, 0, 40]
            return flat(function(query, key, value, given, *places, offset, traditional=traditional))

        return listed

    cotangents = [normal(*x.shape, dtype=dtype, seed=50) for x in by(one_by_one, table)(*arrays)]
    one, other = (
        mx.vjp(function, arrays, cotangents)[1]
        for function in (by(cached_attention, table.cos, table.sin), by(one_by_one, table))
    )
    for x, same in zip(one, other, strict=True):
        assert x.dtype == same.dtype
        assert mx.array_equal(x, same)


@pytest.mark.parametrize("transform", ["jvp", "vmap"])
def test_other_transforms_are_refused_by_name(transform):
    tokens, caches = case([21], 3)

    def call(query):
        return attend(query, *tokens[1:], caches, 21)[0]

    with pytest.raises(NotImplementedError, match=f"^cached_attention: {transform} is not supported"):
        mx.eval(
            mx.jvp(call, [tokens[0]], [tokens[0]]) if transform == "jvp" else mx.vmap(call)(tokens[0][None])
        )


def test_gradients_leave_the_caches_unchanged():
    tokens, caches = case([21], 3)
    kept = [mx.array(x) for x in caches[0][:2]]
    mx.eval(kept)

    def loss(query, keys, values):
        out, grown = attend(query, *tokens[1:], [(keys, values, 21)], 21)
        return mx.sum(out**2) + mx.sum(grown[0][0] ** 2)

    values = [loss(tokens[0], *caches[0][:2])]
    value, gradients = mx.value_and_grad(loss, argnums=(0, 1, 2))(tokens[0], *caches[0][:2])
    mx.eval(value, gradients)
    assert mx.allclose(value, values[0])
    for x, same in zip(caches[0][:2], kept, strict=True):
        assert mx.array_equal(x, same)


def test_compile():
    tokens, caches = case([21, None, 9], 3)

    def call(query, key, value, k0, v0, k1, v1):
        return flat(attend(query, key, value, [(k0, v0, 21), None, (k1, v1, 9)], [21, 0, 9]))

    arrays = [*tokens, *(x for cache in caches if cache for x in cache[:2])]
    compiled, expected = mx.compile(call), call(*arrays)
    for _ in range(2):
        for x, same in zip(compiled(*arrays), expected, strict=True):
            assert mx.array_equal(x, same)


@pytest.mark.parametrize(
    "other", [{"length": 8}, {"offset": 8}, {"scale": 1.0}, {"traditional": True}], ids=str
)
def test_calls_that_differ_in_a_number_are_not_merged(other):
    tokens, ((keys, values, _),) = case([20], 3)
    usual = {"length": 9, "offset": 9, "scale": None, "traditional": False}

    def call(arrays, length, offset, **options):
        # Times two: MLX merges no arrays that are outputs themselves.
        return 2 * attend(*arrays[:3], [(*arrays[3:], length)], offset, **options)[0]

    arrays = [*tokens, keys, values]
    one, two = mx.compile(lambda *x: (call(x, **usual), call(x, **(usual | other))))(*arrays)
    assert mx.array_equal(one, call(arrays, **usual))
    assert mx.array_equal(two, call(arrays, **(usual | other)))
    assert not mx.array_equal(one, two)


def test_calls_with_other_idle_rows_are_not_merged():
    tokens, _ = case([9, 9, 9], 1)
    held = filled_cache(12, 9, KV_HEADS, SIZE)

    def call(tokens, caches):
        return 2 * attend(*tokens, caches, 9)[0]

    first, second = [held, None, None], [None, held, None]
    one, two = mx.compile(lambda *tokens: (call(tokens, first), call(tokens, second)))(*tokens)
    assert mx.array_equal(one, call(tokens, first))
    assert mx.array_equal(two, call(tokens, second))
