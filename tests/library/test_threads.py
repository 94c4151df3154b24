"""One model in many threads: loaded and used in different threads, in turn and concurrently."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import tiny_llm
from tiny_llm import LLM, Sampling
from tiny_llm.course.dispatch import MODELS
from tiny_llm.generate import stream_generate
from tiny_llm.models import paged_block

from ..support.page_pool import assert_consistent
from ..support.processes.child import run_python
from ..support.processes.thread import in_a_thread

QUESTION = "What is a token?"
PROMPTS = ["Once upon a time", "The fox", "A token is"]
WEEKS = [(week, {}) for week in MODELS["qwen2"]] + [(2, {"enable_flash_attn": True})]
weeks = pytest.mark.parametrize(
    ("week", "options"), WEEKS, ids=["full", "cached", "paged", "cached, flash attention"]
)


def answers(model: Any, tokenizer: Any) -> str:
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}])
    return "".join(stream_generate(model, tokenizer, prompt, max_tokens=8))


def built(week: int, options: dict[str, bool]) -> tuple[Any, Any]:
    """A model that was not used yet."""
    checkpoint = tiny_llm.load("tiny")
    return tiny_llm.dispatch_model("tiny", checkpoint.mlx_model, week, **options), checkpoint.tokenizer


@weeks
def test_a_model_is_used_first_in_other_threads_than_the_one_that_made_it(week, options):
    model, tokenizer = built(week, options)
    texts = [in_a_thread(lambda: answers(model, tokenizer)) for _ in range(4)]
    assert texts == [answers(*built(week, options))] * 4
    assert answers(model, tokenizer) == texts[0]


@weeks
def test_a_model_is_made_in_a_thread_that_has_ended(week, options):
    model, tokenizer = in_a_thread(lambda: built(week, options))
    assert answers(model, tokenizer) == answers(*built(week, options))


@weeks
def test_an_abandoned_answer_does_not_affect_the_next_thread(week, options):
    model, tokenizer = built(week, options)
    expected = answers(*built(week, options))

    def leave() -> str:
        stream = stream_generate(model, tokenizer, "Once upon a time")
        return next(stream) + next(stream)

    assert in_a_thread(leave)
    assert in_a_thread(lambda: answers(model, tokenizer)) == expected
    assert answers(model, tokenizer) == expected


@pytest.mark.slow
@weeks
def test_concurrent_threads_get_the_same_answers_as_alone(week, options):
    """Also if all of them write to one pool of pages, which grows."""
    model, tokenizer = built(week, options)

    def answer(prompt: str) -> str:
        return "".join(stream_generate(model, tokenizer, prompt, max_tokens=8))

    expected = [answer(prompt) for prompt in PROMPTS] * 4
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(answer, PROMPTS * 4)) == expected
    assert [answer(prompt) for prompt in PROMPTS] == expected[: len(PROMPTS)]
    if week == 3:
        assert_consistent(model.page_pool)
        assert not model.page_pool.used_page_ids


@pytest.mark.parametrize(("week", "options"), WEEKS[1:], ids=str)
def test_a_batch_in_each_of_two_threads_at_once(week, options):
    model, tokenizer = built(week, options)

    def batch(_: int) -> list[tuple[int, str]]:
        return tiny_llm.batch_generate(model, tokenizer, PROMPTS, max_seq_len=12, batch_size=2)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(batch, range(4))) == [batch(0)] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("week", "options"), WEEKS[1:], ids=str)
def test_a_batch_in_each_of_four_threads(week, options):
    model, tokenizer = built(week, options)

    def batch() -> list[tuple[int, str]]:
        return tiny_llm.batch_generate(model, tokenizer, PROMPTS, max_seq_len=12, batch_size=2)

    assert [in_a_thread(batch) for _ in range(4)] == [batch()] * 4


@pytest.mark.parametrize(("week", "options"), WEEKS[1:], ids=str)
def test_another_thread_can_continue_with_the_caches(week, options):
    """Also where the rotation table and the cache grow."""
    model, _ = built(week, options)
    chunks = [range(5, 255), [7], [11], range(40, 50), [3]]

    def step(chunk: Any, offset: int, cache: list[Any]) -> np.ndarray:
        logits = model.next_logits(mx.array([list(chunk)]), offset, cache)
        return np.array(logits.astype(mx.float32))

    here, elsewhere = model.create_kv_cache(), model.create_kv_cache()
    offset = 0
    for chunk in chunks:
        there = in_a_thread(lambda chunk=chunk, offset=offset: step(chunk, offset, elsewhere))
        assert np.array_equal(there, step(chunk, offset, here))
        offset += len(chunk)


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("batch", [False, True], ids=["alone", "batch"])
def test_a_step_on_pages_is_started_before_another_thread_may_write(monkeypatch, batch):
    """MLX crashes where two threads evaluate graphs that share an array, and a step reads the pages.

    In a block of several operations, the last ones read the pages and write nothing. Only the thread that
    made a graph can start it: here the main thread waits for what another one has started.
    """
    monkeypatch.setattr(paged_block, "fused_operation", lambda *arguments: None)
    model, _ = built(3, {})

    def hidden() -> mx.array:
        cache = model.create_kv_cache()
        if not batch:
            return model.forward(mx.array([[5, 7, 11]]), 0, cache)
        model.forward(mx.array([[5, 7]]), 0, cache)
        of_batch = model.create_batch_cache(1, 16)
        for layer, prefilled in zip(of_batch, cache, strict=True):
            layer.add_request(prefilled, 0)
        return model.forward(mx.array([[11]]), [2], of_batch)

    assert np.array_equal(np.array(in_a_thread(hidden)), np.array(hidden()))


@pytest.mark.usefixtures("on_the_cpu")
def test_pages_are_only_waited_for_under_the_lock_of_their_pool(monkeypatch):
    model, tokenizer = built(3, {})
    pool, evaluate, ready = model.page_pool, mx.eval, []

    def checked(*trees: Any) -> None:
        evaluate(*trees)
        pages = [each for _, each in tree_flatten(trees) if any(each is page for page in pool._stored or ())]
        assert pool._lock._is_owned() or all(any(page is each for each in ready) for page in pages)
        ready.extend(pages)

    monkeypatch.setattr(mx, "eval", checked)
    tiny_llm.batch_generate(model, tokenizer, PROMPTS, max_seq_len=12, batch_size=2)
    assert ready


@pytest.mark.parametrize("page_size", [2, 128])
def test_an_error_in_a_thread_leaves_the_pages_of_others_readable(page_size):
    """One layer has written its tokens when the next one fails."""
    checkpoint = tiny_llm.load("tiny")
    model = tiny_llm.dispatch_model("tiny", checkpoint.mlx_model, 3, page_size=page_size)
    expected = answers(model, checkpoint.tokenizer)
    block = model.layers_inner[1]
    mlp, block.mlp = block.mlp, None
    with pytest.raises(TypeError):
        in_a_thread(lambda: answers(model, checkpoint.tokenizer))
    block.mlp = mlp
    assert answers(model, checkpoint.tokenizer) == expected
    assert not model.page_pool.used_page_ids


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


def test_on_the_cpu_another_thread_can_continue_a_stream():
    llm = LLM("tiny", device="cpu")
    stream = llm.stream(QUESTION, max_tokens=8)
    pieces = [in_a_thread(lambda: next(stream)) for _ in range(5)]
    assert "".join([*pieces, *stream]) == llm.generate(QUESTION, max_tokens=8).text


def test_a_worker_answers_while_other_models_come_and_go():
    """As in a server: one thread computes, others ask, and the main thread loads and drops models."""
    questions: queue.Queue[str | None] = queue.Queue()
    results: queue.Queue[str] = queue.Queue()
    served = LLM("tiny")

    def work() -> None:
        while (question := questions.get()) is not None:
            results.put("".join(served.stream([{"role": "user", "content": question}], max_tokens=8)))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        said = []
        for _ in range(4):
            questions.put(QUESTION)
            other = LLM("tiny", context=64)
            assert other.generate("The fox", max_tokens=3).text
            del other
            said.append(results.get(timeout=60))
    finally:
        questions.put(None)
        worker.join()
    assert said == [served.chat(QUESTION, max_tokens=8).text] * 4


def test_two_concurrent_threads_get_the_same_answers_as_alone(llm):
    def chat(question: str) -> str:
        return llm.chat(question, max_tokens=20).text

    questions = [QUESTION, "Who are you?", "What is 17 + 25?", "What is the opposite of early?"] * 2
    with ThreadPoolExecutor(2) as pool:
        at_once = list(pool.map(chat, questions))
    assert at_once == [chat(question) for question in questions]


def test_threads_draw_different_answers(llm):
    """MLX's random state is one for each thread, and starts the same in all of them."""
    hot = Sampling(temp=3.0, max_tokens=12)
    texts = [in_a_thread(lambda: llm.generate("Once upon a time", sampling=hot).text) for _ in range(4)]
    assert len(set(texts)) == 4


def test_a_program_with_a_worker_thread_ends_well():
    program = """
import threading
from tiny_llm import LLM

llm = LLM("tiny")
worker = threading.Thread(target=lambda: print(llm.generate("Once upon a time", max_tokens=2).text))
worker.start()
worker.join()
"""
    ended = run_python("-c", program)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, ", there", "")
