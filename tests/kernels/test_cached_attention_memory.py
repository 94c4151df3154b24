"""A cache that nobody else holds takes the new tokens in its own memory; any other one is copied first."""

import mlx.core as mx
import pytest

from tiny_llm.extension import load_extension
from tiny_llm.positional_encoding import RotationTable

from ..support.appended import new_tokens
from ..support.cases import DTYPE_IDS, DTYPES, normal

cached_attention = load_extension().cached_attention
HEADS, KV_HEADS, SIZE, CAPACITY = 4, 2, 64, 4000
TABLE = RotationTable(SIZE, CAPACITY, 10000)


def rows_of_keys(dtype=mx.float32):
    keys, values = (normal(1, KV_HEADS, CAPACITY, SIZE, dtype=dtype, seed=seed) for seed in (1, 2))
    mx.eval(keys, values)
    return keys, values


def step(pairs, length, dtype=mx.float32):
    tokens = new_tokens(len(pairs), 1, HEADS, KV_HEADS, SIZE, dtype)
    mx.eval(tokens)
    given = [(*pair, length) for pair in pairs]
    return cached_attention(*tokens, given, TABLE.cos, TABLE.sin, length)


def memory_of(evaluate) -> int:
    """The most bytes that it needs beside what was there before."""
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    evaluate()
    mx.synchronize()
    return mx.get_peak_memory() - before


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_nobody_else_holds_them(first, count, dtype):
    """Whichever result is asked for."""
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
def test_what_somebody_holds_keeps_its_contents(how, held):
    """And the other one of the two is written in place."""
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
    """Like two beams: each has tokens of its own."""
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


def test_results_that_nobody_waits_for():
    """Their memory stays until the worker has written it."""
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
