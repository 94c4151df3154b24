"""A cache grows in place if nothing else uses its memory or the places of the new tokens, else in a copy."""

import mlx.core as mx
import pytest

from tiny_llm.positional_encoding import RotationTable
from tiny_llm.runtime.extension import load_extension

from ...support.attention.cached import new_tokens
from ...support.cases import DTYPE_IDS, DTYPES, normal

cached_attention = load_extension().cached_attention
HEADS, KV_HEADS, SIZE, CAPACITY = 4, 2, 64, 4000
TABLE = RotationTable(SIZE, CAPACITY, 10000)


def rows_of_keys(dtype=mx.float32):
    keys, values = (normal(1, KV_HEADS, CAPACITY, SIZE, dtype=dtype, seed=seed) for seed in (1, 2))
    mx.eval(keys, values)
    return keys, values


def step(pairs, length, dtype=mx.float32, *, kept=False):
    tokens = new_tokens(len(pairs), 1, HEADS, KV_HEADS, SIZE, dtype)
    mx.eval(tokens)
    given = [(*pair, length, True) if kept else (*pair, length) for pair in pairs]
    return cached_attention(*tokens, given, TABLE.cos, TABLE.sin, length)


def memory_of(evaluate) -> int:
    """The peak memory of `evaluate`, in bytes above the memory before."""
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    evaluate()
    mx.synchronize()
    return mx.get_peak_memory() - before


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_caches_that_nothing_else_uses_grow_in_place(first, count, dtype):
    """Whichever result is evaluated."""
    pairs = [rows_of_keys(dtype) for _ in range(count)]
    kept = [[mx.array(x[:, :, :9]) for x in pair] for pair in pairs]
    mx.eval(kept)
    size = pairs[0][0].nbytes
    out, pairs = step(pairs, 9, dtype)
    assert memory_of(lambda: mx.eval([out, *pairs[0]][first])) < size / 4
    for pair, old in zip(pairs, kept, strict=True):
        for x, same in zip(pair, old, strict=True):
            assert mx.array_equal(x[:, :, :9], same)


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("how", [lambda x: x, lambda x: x[:, :, :9], lambda x: x.swapaxes(1, 2)])
def test_an_array_in_use_keeps_its_contents(how, held):
    """The other one of the two is written in place."""
    pairs = [rows_of_keys()]
    kept, size = [mx.array(x) for x in pairs[0]], pairs[0][0].nbytes
    mine = how(pairs[0][held])
    mx.eval(kept, mine)
    results = []
    out, results = step(pairs, 9)
    del pairs
    needed = memory_of(lambda: mx.eval(out))
    assert size <= needed < size * 5 / 4
    assert mx.array_equal(mine, how(kept[held]))
    for x, old in zip(results[0], kept, strict=True):
        assert mx.array_equal(x[:, :, :9], old[:, :, :9])
        assert mx.array_equal(x[:, :, 10:], old[:, :, 10:])
        assert not mx.array_equal(x[:, :, 9], old[:, :, 9])


def test_two_steps_from_one_cache():
    """As in beam search: each has tokens of its own."""
    pair = rows_of_keys()
    kept = [mx.array(x) for x in pair]
    mx.eval(kept)
    one, (ours,) = step([pair], 9)
    other, (theirs,) = step([pair], 20)
    del pair
    mx.eval(one, other)
    for i in range(2):
        assert mx.array_equal(ours[i][:, :, 20], kept[i][:, :, 20])
        assert mx.array_equal(theirs[i][:, :, 9], kept[i][:, :, 9])
        assert not mx.array_equal(ours[i][:, :, 9], kept[i][:, :, 9])


def grown(dtype=mx.float32):
    """Caches returned by a step, with ten tokens."""
    out, (pair,) = step([rows_of_keys(dtype)], 9, dtype)
    mx.eval(out)
    return pair


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_returned_cache_grows_in_place_while_it_is_in_use(dtype):
    """The places after its tokens are free; its tokens do not change."""
    pair = grown(dtype)
    kept, size = [mx.array(x[:, :, :10]) for x in pair], pair[0].nbytes
    expected, (same,) = step([[mx.array(x) + 0 for x in pair]], 10, dtype)
    mx.eval(kept, expected, same)
    out, (longer,) = step([pair], 10, dtype, kept=True)
    assert memory_of(lambda: mx.eval(out)) < size / 4
    assert mx.array_equal(out, expected)
    for x, more, old, other in zip(pair, longer, kept, same, strict=True):
        assert mx.array_equal(x[:, :, :10], old)
        assert mx.array_equal(more[:, :, :11], other[:, :, :11])


def test_steps_that_are_still_being_computed():
    """Each is started before the previous one is computed."""
    pair = rows_of_keys()
    expected, same = [], [[mx.array(x) + 0 for x in pair]]
    for length in range(9, 30):
        out, same = step(same, length)
        mx.eval(out)
        expected.append(out)
    results, pairs = [], [pair]
    del pair

    def all_steps():
        nonlocal pairs
        for length in range(9, 30):
            out, pairs = step(pairs, length, kept=length > 9)
            mx.async_eval(out)
            results.append(out)

    assert memory_of(all_steps) < same[0][0].nbytes / 4
    assert all(mx.array_equal(x, y) for x, y in zip(results, expected, strict=True))
    assert all(mx.array_equal(x, y) for x, y in zip(pairs[0], same[0], strict=True))


def test_two_steps_from_one_returned_cache():
    """The first takes the places after its tokens; the second has new memory."""
    pair = grown()
    kept, size = [mx.array(x[:, :, :10]) for x in pair], pair[0].nbytes
    tokens = [new_tokens(1, 1, HEADS, KV_HEADS, SIZE) for _ in range(2)]
    tokens[1] = tuple(2 * x for x in tokens[1])
    results = [cached_attention(*some, [(*pair, 10, True)], TABLE.cos, TABLE.sin, 10) for some in tokens]
    mx.eval(kept)
    needed = memory_of(lambda: mx.eval([out for out, _ in results]))
    assert 2 * size <= needed < 2.5 * size
    for i in range(2):
        one, other = results[0][1][0][i], results[1][1][0][i]
        assert mx.array_equal(one[:, :, :10], kept[i])
        assert mx.array_equal(other[:, :, :10], kept[i])
        assert mx.allclose(2 * one[:, :, 10], other[:, :, 10])
        assert mx.abs(one[:, :, 10]).max() > 0


def test_a_cache_that_was_rewound_while_in_use():
    """The places of the removed tokens are not free."""
    pair = grown()
    kept = [mx.array(x[:, :, :10]) for x in pair]
    out, (other,) = step([pair], 6, kept=True)
    mx.eval(out)
    for x, old, shorter in zip(pair, kept, other, strict=True):
        assert mx.array_equal(x[:, :, :10], old)
        assert mx.array_equal(shorter[:, :, :6], old[:, :, :6])
        assert not mx.array_equal(shorter[:, :, 6], old[:, :, 6])


def test_a_cache_that_was_rewound_and_grows_again():
    """In place if nothing else uses it, and from then on also while it is in use."""
    results, size = [grown()], rows_of_keys()[0].nbytes
    out, results = step(results, 4, kept=True)
    assert memory_of(lambda: mx.eval(out)) < size / 4
    out, _ = step(results, 5, kept=True)
    assert memory_of(lambda: mx.eval(out)) < size / 4


def test_the_same_memory_in_another_shape():
    """Its tokens have other places."""
    pair = grown()
    kept = [mx.array(x[:, :, :10]) for x in pair]
    mx.eval(kept)
    half = [x.reshape(1, KV_HEADS * 2, CAPACITY // 2, SIZE) for x in pair]
    tokens = new_tokens(1, 1, 4, 4, SIZE)
    out, _ = cached_attention(*tokens, [(*half, 10, True)], TABLE.cos, TABLE.sin, 10)
    needed = memory_of(lambda: mx.eval(out))
    assert needed >= 2 * pair[0].nbytes
    for x, old in zip(pair, kept, strict=True):
        assert mx.array_equal(x[:, :, :10], old)


def test_the_same_memory_transposed():
    """Its heads have other places."""
    pair = grown()
    kept = [mx.array(x[:, :, :10]) for x in pair]
    mx.eval(kept)
    out, (other,) = step([[x[:, ::-1] for x in pair]], 10, kept=True)
    assert memory_of(lambda: mx.eval(out)) >= 2 * pair[0].nbytes
    for x, old, more in zip(pair, kept, other, strict=True):
        assert mx.array_equal(x[:, :, :10], old)
        assert mx.array_equal(more[:, :, :10], old[:, ::-1])


def written(x):
    x[:, :, 10:20] = 7.0
    return x


@pytest.mark.parametrize("how", [written, lambda x: 2 * x])
def test_memory_that_mlx_gave_to_another_array(how):
    """MLX reuses the memory of unused arrays; the new array is not a cache."""
    arrays = [how(x) for x in grown()]
    mx.eval(arrays)
    kept = [mx.array(x) + 0 for x in arrays]
    mx.eval(kept)
    out, _ = step([arrays], 10)
    mx.eval(out)
    for x, old in zip(arrays, kept, strict=True):
        assert mx.array_equal(x, old)


def test_results_that_are_never_read():
    """Their memory stays until the worker thread has written it."""
    expected, _ = step([rows_of_keys()], 9)
    mx.eval(expected)
    for _ in range(30):
        out, pairs = step([rows_of_keys()], 9)
        mx.async_eval(out)
        del out, pairs
        out, pairs = step([rows_of_keys()], 9)
        mx.async_eval(pairs[0][0])
        del pairs
        assert mx.array_equal(out, expected)
