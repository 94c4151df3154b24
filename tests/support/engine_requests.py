"""Requests of an engine, what it answers, and what the model answers alone."""

import threading
from contextlib import contextmanager

from tiny_llm.engine import Engine, EngineRequest
from tiny_llm.sampling.params import Sampling

PROMPTS = [
    "Once upon a time",
    "What is FlashAttention?",
    "The quick brown fox jumps over the lazy dog, and then " * 8,
    "a",
    "Who are you? " * 20,
]


def ids_of(llm, prompt):
    return llm.tokenizer.encode(prompt)


def request_of(llm, prompt, max_tokens=24, **options):
    sampling = Sampling(max_tokens=max_tokens, **options.pop("sampling", {}))
    return EngineRequest(prompt_ids=ids_of(llm, prompt), sampling=sampling, **options)


def read(handle):
    """Texts, tokens and reasons of all answers."""
    texts, tokens, reasons = ([""] * handle.choices, [()] * handle.choices, [None] * handle.choices)
    for event in handle:
        assert reasons[event.choice] is None
        texts[event.choice] += event.text
        tokens[event.choice] += event.token_ids
        reasons[event.choice] = event.finish_reason
    return list(zip(texts, tokens, reasons, strict=True))


def alone(llm, prompt, max_tokens=24, **options):
    result = llm.generate(prompt, max_tokens=max_tokens, **options)
    return [(result.text, result.token_ids, result.finish_reason)]


def assert_at_rest(engine):
    assert engine.drain(timeout=10)
    statistics = engine.statistics()
    assert (statistics.running, statistics.waiting, statistics.pages_used) == (0, 0, 0)


@contextmanager
def computing(llm, monkeypatch, **options):
    """An engine in the first step of a request, the handle of that, and what lets the step end."""
    with Engine(llm, max_context=512, **options) as engine:
        entered, gate, logits = threading.Event(), threading.Event(), engine._steps.runner.logits

        def wait(plan):
            entered.set()
            assert gate.wait(30)
            return logits(plan)

        monkeypatch.setattr(engine._steps.runner, "logits", wait)
        try:
            handle = engine.submit(request_of(llm, PROMPTS[0]))
            assert entered.wait(30)
            yield engine, handle, gate
        finally:
            gate.set()
