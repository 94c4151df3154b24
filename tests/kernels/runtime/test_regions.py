"""The log of parallel regions, how many a decode step has, and what the thread pool costs."""

import re
import threading
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import mlx.core as mx
import pytest

from tiny_llm import dispatch_model
from tiny_llm.generation.sequence import next_logits
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.tree import assemble
from tiny_llm.runtime.extension import load_extension

from ...support.cases import qkv
from ...support.models.checkpoints import tokens
from ...support.refusal import refused

pytestmark = pytest.mark.usefixtures("on_the_cpu")

native = load_extension()
LAYERS, CONTEXT = 2, 600
HEAD = "quantized product"
BLOCK = ["query, key and value", "append", "attention", "output", "gate and up", "down"]


def allowed_cpus():
    """As the thread pool counts them: in the affinity of the process, and by the quota of a container."""
    with pytest.raises(ValueError, match="pool_costs: threads: got 1048576, expected 1 to") as refusal:
        native.pool_costs(1 << 20)
    return int(re.search(r"1 to (\d+)", str(refusal.value))[1])


CPUS = allowed_cpus()


@pytest.fixture(autouse=True)
def two_threads():
    """Where there is a second CPU: one alone has no parallel regions."""
    if CPUS < 2:
        pytest.skip("one CPU has no parallel regions")
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


@cache
def model_of(stage):
    """Two layers, with dense caches or pages, whose products are all worth waking a thread that sleeps."""
    sizes = {"hidden_size": 2048, "num_attention_heads": 32, "vocab_size": 1 << 12}
    config = replace(random_config("qwen2-0.5b"), num_hidden_layers=LAYERS, **sizes)
    weights = assemble(config, random_weights(config, silent))
    options = {"enable_flash_attn": True} if stage == 2 else {}
    return dispatch_model("qwen2-0.5b", weights, stage, dtype=mx.bfloat16, **options)


def step_of(stage=2, rows=1):
    """A decode step after CONTEXT tokens of all rows together, to be called once."""
    model, context = model_of(stage), CONTEXT // rows
    inputs, kv_cache = tokens(rows, context + 1), model.create_kv_cache()
    mx.eval(inputs, model(inputs[:, :-1], 0, kv_cache), [layer.storage for layer in kv_cache])
    return lambda: mx.eval(next_logits(model, inputs[:, -1:], context, kv_cache))


def attention():
    mx.eval(native.attention(*qkv(L=300), threads=2)[0])


@pytest.mark.parametrize(("stage", "rows"), [(2, 1), (2, 8), (3, 1)], ids=["dense", "batch", "pages"])
def test_a_decode_step_has_few_regions_a_block_and_one_for_the_head(stage, rows):
    """Each costs microseconds, in every layer of every step: a new one must be worth it.

    Attention of one row cuts its keys into chunks, and then merges their results. In a batch, `down` has so
    much to pack that the threads share it: first rows, then parts of K.
    """
    log = logged(step_of(stage, rows))
    assert [each["operation"] for each in log if not each["items"]] == [*BLOCK * LAYERS, "norm", HEAD]
    assert Counter(each["operation"] for each in log if each["items"]) == {
        "query, key and value": LAYERS, "attention": LAYERS * (1 if rows == 8 else 2), "output": LAYERS,
        "gate and up": LAYERS, "down": LAYERS * (3 if rows == 8 else 1), HEAD: 1,
    }  # fmt: skip


def test_a_region_lies_in_its_operation_and_its_threads_in_the_region():
    log = logged(step_of())
    ends = [each["end"] for each in log]
    assert ends == sorted(ends)
    whole = sorted((each for each in log if not each["items"]), key=lambda each: each["begin"])
    assert all(first["end"] <= second["begin"] for first, second in pairwise(whole))
    for region in (each for each in log if each["items"]):
        around = next(each for each in whole if each["end"] >= region["end"])
        assert around["operation"] == region["operation"]
        assert around["begin"] <= region["begin"] <= region["end"]
        assert region["threads"] == 2
        assert 0 < region["longest"] <= region["busy"] <= 2 * region["longest"]
        assert region["longest"] <= region["end"] - region["begin"]


def test_a_log_begins_empty_and_nothing_is_kept_after_its_end():
    assert [each["operation"] for each in logged(attention)] == ["attention", "attention"]
    attention()
    assert native.end_region_log() == []
    assert logged(lambda: None) == []


def test_two_callers_have_their_regions_in_one_log():
    """Each names its own, however their calls overlap."""
    start = threading.Barrier(2)
    steps = [step_of() for _ in range(3)]

    def attend():
        with mx.stream(mx.new_stream(mx.cpu)):
            start.wait()
            for _ in range(10):
                attention()

    def both():
        other = threading.Thread(target=attend)
        other.start()
        start.wait()
        for step in steps:
            step()
        other.join(timeout=120)
        assert not other.is_alive()

    whole = Counter(each["operation"] for each in logged(both) if not each["items"])
    assert whole == {**dict.fromkeys(BLOCK, 3 * LAYERS), "attention": 3 * LAYERS + 10, "norm": 3, HEAD: 3}


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
