"""Lists of prompts on an engine of their own: what one request does to the others, and to memory."""

import itertools
import math
import os
import re
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import pytest

from tiny_llm import NumericError, Sampling
from tiny_llm.engine import Engine, EngineRequest, Timings
from tiny_llm.engine import batch as engine_batch
from tiny_llm.engine.answer import Answer
from tiny_llm.engine.batch import answer_all, check_list_invariant
from tiny_llm.engine.sizes import DEFAULT_SHARE, PAGE_SIZE, batch_memory, machine_memory
from tiny_llm.errors import ArgumentError, StepFailed
from tiny_llm.generation import batching
from tiny_llm.generation.loaded import LoadedModel
from tiny_llm.generation.result import Statistics
from tiny_llm.generation.sequence import next_logits
from tiny_llm.models import dispatch_model
from tiny_llm.sampling.grammar import Grammar

from ..support.engine_requests import PROMPTS, read, request_of
from ..support.gpu import on_a_gpu
from ..support.models.checkpoints import VOCABULARY, checkpoint

pytestmark = pytest.mark.usefixtures("on_the_cpu")
ONE = Sampling(max_tokens=1)


@pytest.fixture
def llm(cpu_llm):
    """A GPU answers lists without an engine."""
    return cpu_llm


def comparable(results):
    return [(result.text, result.token_ids, result.finish_reason) for result in results]


def test_a_list_gets_the_tokens_of_each_prompt_alone(llm):
    alone = [llm.generate(prompt, max_tokens=12) for prompt in PROMPTS]
    assert comparable(llm.generate(PROMPTS, max_tokens=12, batch_size=4)) == comparable(alone)


def test_nan_in_one_request_leaves_the_others(llm, monkeypatch):
    expected = llm.generate(PROMPTS[:3], max_tokens=6)
    score, calls = llm.model.score, [0]

    def lost(x):
        calls[0] += 1
        logits = score(x)
        return mx.concatenate([logits[:1] * math.nan, logits[1:]]) if calls[0] == 3 else logits

    monkeypatch.setattr(llm.model, "score", lost)
    with pytest.raises(NumericError) as caught:
        llm.generate(PROMPTS[:3], max_tokens=6)
    first, *others = caught.value.results
    assert first.finish_reason is None
    assert 0 < len(first.token_ids) < 6
    assert comparable(others) == comparable(expected[1:])


def test_another_error_ends_all_and_the_next_list_runs(llm, monkeypatch):
    def fail(x):
        raise ZeroDivisionError("no such step")

    monkeypatch.setattr(llm.model, "score", fail)
    for _ in range(2):
        with pytest.raises(StepFailed, match="ZeroDivisionError: no such step"):
            llm.generate(PROMPTS, max_tokens=6)


def test_lists_use_one_thread_after_the_other(llm):
    """Of the system, too: MLX keeps a thread for each thread of Python that has used it."""

    def threads():
        tasks = Path("/proc/self/task")  # of Linux
        return threading.active_count(), len(os.listdir(tasks)) if tasks.is_dir() else 0

    llm.generate(PROMPTS[:2], max_tokens=2)
    before = threads()
    for _ in range(3):
        llm.generate(PROMPTS[:2], max_tokens=2)
    assert threads() == before


def test_a_request_that_can_never_run_is_refused(llm):
    with pytest.raises(ArgumentError, match="prompt_ids: got an unknown token id"):
        answer_all(llm, [request_of(llm, "a", 2), EngineRequest(prompt_ids=[-1], sampling=ONE)], batch_size=1)


def test_an_error_of_the_caller_ends_all(llm):
    """As Ctrl-C and a reader of the output that is gone."""
    requests = [request_of(llm, prompt, 400, sampling={"ignore_eos": True}) for prompt in PROMPTS]
    requests[2] = request_of(llm, PROMPTS[2], 1)

    def stop(index, result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_all(llm, requests, batch_size=5, finished=stop)
    assert llm.generate(PROMPTS[:1], max_tokens=2)


@pytest.mark.parametrize("batch_size", [1, 50])
def test_a_step_of_a_list_has_a_part_of_a_prompt_beside_each_answer(llm, monkeypatch, batch_size):
    """Of those that there are."""
    steps = []

    class Watched(Engine):
        def close(self):
            steps.append(self.statistics().step_tokens)
            super().close()

    monkeypatch.setattr(engine_batch, "Engine", Watched)
    request = EngineRequest(prompt_ids=[5] * 100, sampling=ONE)
    answer_all(llm, [request], batch_size=batch_size, prefill_tokens=40)
    assert steps == [(41, 41, 18)]


def test_a_list_is_batch_invariant_only_with_flash_attention(llm, monkeypatch):
    check_list_invariant(llm)
    monkeypatch.setattr(engine_batch, "has_paged_kernel", lambda model: False)
    with pytest.raises(ArgumentError, match="batch_invariant: got True without FlashAttention"):
        check_list_invariant(llm)


def test_few_requests_are_in_the_engine_at_a_time(llm, monkeypatch):
    """Of a list of any length."""
    waiting = []

    class Watched(Engine):
        def submit(self, request):
            handle = super().submit(request)
            statistics = self.statistics()
            waiting.append(statistics.running + statistics.waiting)
            return handle

    monkeypatch.setattr(engine_batch, "Engine", Watched)
    assert len(llm.generate(["a"] * 12, max_tokens=2, batch_size=2)) == len(waiting) == 12
    assert max(waiting) <= 4


def test_a_seeded_answer_is_the_same_alone_in_a_list_and_from_an_engine(llm, engine):
    seeded = Sampling(temp=1.0, top_p=0.95, repetition_penalty=1.1, seed=11, max_tokens=12)
    request = EngineRequest(prompt_ids=llm.tokenizer.encode(PROMPTS[1]), sampling=seeded)
    ((text, tokens, _),) = read(engine.submit(request))
    for result in (llm.generate(PROMPTS[1], seeded), llm.generate([PROMPTS[0], PROMPTS[1]], seeded)[1]):
        assert (result.text, result.token_ids) == (text, tokens)


def test_equal_beginnings_are_computed_once(llm):
    """The second prompt of this list starts after the first one has ended."""
    beginning = PROMPTS[4] * 2
    prompts = [beginning + "a", beginning + "b", PROMPTS[2] * 2]
    results = llm.generate(prompts, max_tokens=2, batch_size=1)
    assert results[0].statistics.cached_tokens == 0
    assert results[1].statistics.cached_tokens >= PAGE_SIZE


def test_prompts_that_are_hardly_longer_than_a_page_share_it(llm):
    requests = [EngineRequest(prompt_ids=[5] * PAGE_SIZE + [last], sampling=ONE) for last in (6, 7)]
    results = answer_all(llm, requests, batch_size=1)
    assert [result.statistics.cached_tokens for result in results] == [0, PAGE_SIZE]


def best_tokens(model, prompt_ids, count):
    """The greedy answer of the model alone, which reads its text again for each token."""
    ids = list(prompt_ids)
    for _ in range(count):
        logits = model(mx.array([ids]), 0, model.create_kv_cache())
        ids.append(mx.argmax(logits[0, -1]).item())
    return tuple(ids[len(prompt_ids) :])


@pytest.mark.parametrize("device", [nullcontext, on_a_gpu])
def test_answers_that_fill_the_context_to_its_last_position(llm, device, monkeypatch):
    """And have one more token, which is not computed. Steps that start ahead must not compute it either."""
    offsets = []

    def watched(model, tokens, starts, caches):
        offsets.extend(starts)
        return next_logits(model, tokens, starts, caches)

    monkeypatch.setattr(batching, "next_logits", watched)
    context = 24
    weights = checkpoint(layers=1, max_position_embeddings=context)
    with device():
        model = dispatch_model("a folder", weights, 2, dtype=mx.float32, enable_flash_attn=True)
    small = LoadedModel("small", model, llm.tokenizer, "cpu", context)
    prompts = [[(7 * place + length) % VOCABULARY for place in range(length)] for length in (20, 23, 18)]
    limits = [context + 1 - len(prompt) for prompt in prompts]
    requests = [
        EngineRequest(prompt_ids=prompt, sampling=Sampling(max_tokens=limit, ignore_eos=True))
        for prompt, limit in zip(prompts, limits, strict=True)
    ]
    with device():
        results = answer_all(small, requests, batch_size=2)
    expected = [best_tokens(model, prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]
    assert [result.token_ids for result in results] == expected
    assert max(offsets, default=context - 1) == context - 1  # of the decode steps on dense caches
    waits = [result.statistics.queued_seconds for result in results]
    assert 0 < waits[0] <= waits[-1]


def test_a_list_has_an_engine_of_its_size(llm, monkeypatch):
    """As many may wait as run, and as many again: none that the list submits is refused."""
    made = []

    def make(model, **options):
        made.append(options)
        return Engine(model, **options)

    monkeypatch.setattr(engine_batch, "Engine", make)
    requests = [request_of(llm, prompt, 3) for prompt in PROMPTS]
    lengths = [len(request.prompt_ids) + 3 for request in requests]
    answer_all(llm, requests, batch_size=4, prefill_tokens=100)
    memory = batch_memory(llm.model, lengths, 4)
    sizes = {"kv_memory": memory, "max_context": max(lengths), "step_tokens": 104}
    limits = {"max_running": 4, "max_waiting": 8}
    flags = {"prefix_cache": False, "lookup": True, "grows": True, "batch_invariant": False, "draft": None}
    assert made == [sizes | limits | flags]


@pytest.mark.parametrize("device", [nullcontext, on_a_gpu])
def test_all_parameters_of_a_request_reach_its_answer(llm, device):
    with device():
        stopped, free, written, short = answer_all(
            llm,
            [
                request_of(llm, PROMPTS[0], logprobs=1, sampling={"stop": "there"}),
                request_of(llm, PROMPTS[0], sampling={"temp": 5.0, "seed": 3}),
                request_of(llm, PROMPTS[0], grammar=Grammar.regex("[a-z]{5}")),
                request_of(llm, PROMPTS[0], 3),
            ],
            batch_size=2,
        )
    assert stopped.finish_reason == "stop"
    assert {len(entry.top) for entry in stopped.logprobs} == {1}
    assert free.text != llm.generate(PROMPTS[0], max_tokens=24).text
    assert free.logprobs is None
    assert re.fullmatch("[a-z]{5}", written.text)
    assert (len(short.token_ids), short.finish_reason) == (3, "length")


def test_the_times_of_an_answer_do_not_overlap(llm, monkeypatch):
    """From the begin of the list to its start, to its first token, to its end."""
    clock = itertools.count(100)  # the list begins, then each request is submitted
    monkeypatch.setattr(engine_batch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    submit = Engine.submit

    def submit_at(engine, request):
        handle = submit(engine, request)
        handle.submitted_at = next(clock)
        return handle

    monkeypatch.setattr(Engine, "submit", submit_at)
    timings = Timings("length", 5, queue_seconds=20, first_token_seconds=50, seconds=110)
    monkeypatch.setattr(Answer, "timings", lambda answer, now: timings)
    for number, result in enumerate(llm.generate(PROMPTS[:2], max_tokens=4), start=1):
        prompt_tokens = len(llm.tokenizer.encode(PROMPTS[number - 1]))
        assert result.statistics == Statistics(prompt_tokens, 5, 30, 60, number + 20, cached_tokens=0)


def test_many_log_probabilities_of_a_token(llm):
    (result,) = llm.generate([PROMPTS[0]], max_tokens=1, logprobs=40)
    assert len(result.logprobs[0].top) == 40


def test_memory_is_for_the_longest_requests_of_a_batch_and_bounded(llm):
    page = batch_memory(llm.model, [1], 1)
    lengths = [PAGE_SIZE, 3 * PAGE_SIZE, 2 * PAGE_SIZE + 1]
    assert batch_memory(llm.model, lengths, 2) == (3 + 3 + 1) * page
    assert batch_memory(llm.model, [100 * PAGE_SIZE] * 10**6, 10**6) <= DEFAULT_SHARE * machine_memory()
    assert batch_memory(llm.model, [10**9], 1) >= 10**9 // PAGE_SIZE * page
