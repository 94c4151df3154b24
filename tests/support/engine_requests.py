"""Requests of an engine, what it answers, and what the model answers alone."""

from tiny_llm.engine import EngineRequest
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
