"""The log of parallel regions, how many a decoder block has, and what the thread pool costs."""

import os
import threading
from collections import Counter
from itertools import pairwise

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.attention.cached import table_of
from ...support.cases import normal, qkv
from ...support.products.quantized import packed
from ...support.refusal import refused

native = load_extension()
HIDDEN, INNER, HEADS, KV_HEADS, SIZE = 896, 4864, 14, 2, 64  # of qwen2-0.5b
SHAPES = [
    (HIDDEN, HIDDEN), (KV_HEADS * SIZE, HIDDEN), (KV_HEADS * SIZE, HIDDEN), (HIDDEN, HIDDEN),
    (INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER),
]  # fmt: skip
CONTEXT = 600
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def two_threads():
    """Two for decoding; a machine with one CPU has no regions, and these tests would be of nothing."""
    assert CPUS > 1, "the tests of parallel regions need two CPUs"
    before = native.cpu_threads()
    native.set_cpu_threads("2")
    yield
    native.set_cpu_threads(",".join(map(str, before)))


def logged(call):
    """What `call` adds to the log; it ends in any case, so that the next test has its own."""
    native.start_region_log()
    try:
        call()
    finally:
        log = native.end_region_log()
    return log


def block_of_one_token(rows=1):
    """A step of a decoder block of qwen2-0.5b after CONTEXT tokens, not evaluated yet."""
    weights = [packed(*shape, dtype=mx.bfloat16, seed=i) for i, shape in enumerate(SHAPES)]
    arrays = [x for w in weights for x in (w.words, w.scales, w.biases)]
    table = table_of(SIZE)
    norms = [normal(HIDDEN, dtype=mx.bfloat16, seed=i) for i in range(2)]
    arrays += [*norms, table.cos, table.sin]
    block = native.DecoderBlock.of(arrays, [(64, 4)] * 4, False, [1e-6, 1e-6], SIZE, False)
    keys, values = (
        normal(rows, KV_HEADS, CONTEXT + 8, SIZE, dtype=mx.bfloat16, seed=seed) for seed in (1, 2)
    )
    x = normal(rows, 1, HIDDEN, dtype=mx.bfloat16)
    mx.eval(x, keys, values, arrays)
    return block(x, [(keys, values, CONTEXT)], CONTEXT)


def attention():
    mx.eval(native.attention(*qkv(L=300), threads=2)[0])


@pytest.mark.parametrize("rows", [1, 8])
def test_a_block_on_new_tokens_has_five_regions(rows):
    """Each costs microseconds, in every layer of every step: a new one must be worth it."""
    output = block_of_one_token(rows)
    log = logged(lambda: mx.eval(output))
    assert [each["operation"] for each in log if not each["items"]] == [
        "query, key and value", "append", "attention", "output", "gate and up", "down"
    ]  # fmt: skip
    assert Counter(each["operation"] for each in log if each["items"]) == {
        "query, key and value": 1, "attention": 1, "output": 1, "gate and up": 1, "down": 1
    }  # fmt: skip


def test_a_region_lies_in_its_operation_and_its_threads_in_the_region():
    output = block_of_one_token()
    log = logged(lambda: mx.eval(output))
    operations = {each["operation"]: each for each in log if not each["items"]}
    for region in (each for each in log if each["items"]):
        around = operations[region["operation"]]
        assert around["begin"] <= region["begin"] <= region["end"] <= around["end"]
        assert region["threads"] == 2
        assert 0 < region["longest"] <= region["busy"] <= 2 * region["longest"]
        assert region["longest"] <= region["end"] - region["begin"]
    ends = [each["end"] for each in log]
    assert ends == sorted(ends)
    whole = sorted(operations.values(), key=lambda each: each["begin"])
    assert all(first["end"] <= second["begin"] for first, second in pairwise(whole))


def test_a_log_begins_empty_and_nothing_is_kept_after_its_end():
    assert [each["operation"] for each in logged(attention)] == ["attention", "attention"]
    attention()
    assert native.end_region_log() == []
    assert logged(lambda: None) == []


def test_two_callers_have_their_regions_in_one_log():
    """Each names its own, however their calls overlap."""
    start = threading.Barrier(2)
    blocks = [block_of_one_token() for _ in range(10)]

    def attend():
        with mx.stream(mx.new_stream(mx.cpu)):
            start.wait()
            for _ in range(10):
                attention()

    def both():
        other = threading.Thread(target=attend)
        other.start()
        start.wait()
        for output in blocks:
            mx.eval(output)
        other.join(timeout=120)
        assert not other.is_alive()

    whole = Counter(each["operation"] for each in logged(both) if not each["items"])
    assert whole == {
        "query, key and value": 10, "append": 10, "attention": 20, "output": 10, "gate and up": 10, "down": 10
    }  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_costs_of_the_thread_pool(threads):
    costs = native.pool_costs(threads)
    assert list(costs) == ["region", "wake", "barrier"]
    assert 0 < costs["region"] < 1
    assert 0 < costs["wake"] < 1
    assert 0 <= costs["barrier"] < 1


@pytest.mark.parametrize("threads", [0, CPUS + 1])
def test_costs_of_more_threads_than_the_process_may_use(threads):
    """They would wait for each other, and never all run."""
    with refused("threads", function="pool_costs"):
        native.pool_costs(threads)


def test_costs_of_all_threads_for_two_callers_at_once():
    """A caller whose threads are taken by another one says so, and does not wait for them forever."""
    ends = []

    def measure():
        try:
            ends.append(native.pool_costs(CPUS)["region"] > 0)
        except RuntimeError as error:
            ends.append(str(error).startswith(f"pool_costs: fewer than {CPUS} threads"))

    callers = [threading.Thread(target=measure) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=120)
    assert ends == [True, True]
