"""A small model drafts in the batch: greedy answers stay the same, sampled ones keep their distribution."""

import copy
from collections import defaultdict

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import LLM, ArgumentError
from tiny_llm.engine import Engine
from tiny_llm.engine.drafts import PromptLookup, relative_cost
from tiny_llm.sampling.grammar import Grammar
from tiny_llm.sampling.propose import propose

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, ids_of, read, request_of
from ..support.generation.sampling import assert_drawn_from, probabilities

SIZES = {"max_context": 512, "page_size": 8}
ENDLESS = {"ignore_eos": True}


@pytest.fixture(scope="module")
def weak():
    """The embedded model without its last layers: often wrong."""
    draft = LLM("tiny", dtype="float32")
    draft.model.layers_inner = draft.model.layers_inner[:-1]
    return draft


@pytest.fixture(autouse=True)
def drafts_always_pay(monkeypatch):
    """A draft as large as its model saves nothing, and would soon be switched off."""
    monkeypatch.setattr("tiny_llm.engine.engine.relative_cost", lambda draft, model: 0.0)


def engine_with(llm, draft, **options):
    return Engine(llm, draft=draft, **({"lookup": False} | SIZES | options))


def test_a_draft_equal_to_the_model_is_always_right(llm):
    with engine_with(llm, llm, step_tokens=64, max_running=16) as engine:
        handles = [engine.submit(request_of(llm, prompt, sampling=ENDLESS)) for prompt in PROMPTS]
        answers = [read(handle) for handle in handles]
        statistics = engine.statistics()
        assert statistics.accepted_tokens == statistics.drafted_tokens > 8 * len(PROMPTS)
        assert_at_rest(engine)
    for prompt, ((text, tokens, _),) in zip(PROMPTS, answers, strict=True):
        ((expected, expected_tokens, _),) = alone(llm, prompt)
        assert tokens[: len(expected_tokens)] == expected_tokens
        assert text.startswith(expected)


def test_a_draft_costs_its_share_of_the_bytes(llm, weak, monkeypatch):
    share = relative_cost(weak.model, llm.model)
    assert share < 0.95
    assert share * relative_cost(llm.model, weak.model) == pytest.approx(1)
    seen = []
    monkeypatch.setattr("tiny_llm.engine.engine.relative_cost", lambda *models: seen.append(models) or 0.0)
    engine_with(llm, weak).close()
    assert seen == [(weak.model, llm.model)]


def test_a_draft_given_by_its_name_computes_like_its_model(llm):
    """With the most drafts that are allowed."""
    with engine_with(llm, "tiny", draft_tokens=16) as engine:
        read(engine.submit(request_of(llm, PROMPTS[0], 20, sampling=ENDLESS)))
        statistics = engine.statistics()
    assert statistics.accepted_tokens == statistics.drafted_tokens > 8


def test_a_sampled_draft_of_an_equal_model_is_always_right(llm):
    """It is verified by the distribution that it was drawn from."""
    with engine_with(llm, llm) as engine:
        read(engine.submit(request_of(llm, PROMPTS[0], sampling={"temp": 1.0, "seed": 3, **ENDLESS})))
        statistics = engine.statistics()
    assert statistics.accepted_tokens == statistics.drafted_tokens > 8


def test_drafts_from_the_text_are_not_replaced_by_those_of_the_model(llm, monkeypatch):
    monkeypatch.setattr(PromptLookup, "propose", lambda lookup, token_ids: [7])
    monkeypatch.setattr("tiny_llm.engine.steps.propose", lambda *_: 1 / 0)
    with engine_with(llm, llm, lookup=True) as engine:
        assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])
        assert engine.statistics().drafted_tokens > 8


def test_what_follows_from_a_grammar_is_not_drafted(llm, weak, monkeypatch):
    """Also after tokens that were."""
    calls = []

    def watched(logits, samplers, before):
        calls.extend(sampler for sampler in samplers if not sampler.forced())
        assert all(seen or not sampler.forced() for sampler, seen in zip(samplers, before, strict=True))
        return propose(logits, samplers, before)

    monkeypatch.setattr("tiny_llm.engine.steps.propose", watched)
    with engine_with(llm, weak, draft_tokens=1) as engine:
        grammar = Grammar.regex("[a-z]{6} and so on, and on[a-z]{4}")
        ((text, _, reason),) = read(engine.submit(request_of(llm, PROMPTS[0], 60, grammar=grammar)))
    assert " and so on, and on" in text
    assert reason == "stop"
    assert calls


def test_a_draft_that_is_often_wrong_changes_no_answer(llm, weak):
    with engine_with(llm, weak, draft_tokens=3) as engine:
        handles = [engine.submit(request_of(llm, prompt)) for prompt in PROMPTS]
        assert [read(handle) for handle in handles] == [alone(llm, prompt) for prompt in PROMPTS]
        statistics = engine.statistics()
        assert 0 < statistics.accepted_tokens < statistics.drafted_tokens
        assert_at_rest(engine)


def test_pages_that_are_found_hold_the_keys_of_the_draft_model(llm):
    request = request_of(llm, PROMPTS[2], sampling=ENDLESS)
    with engine_with(llm, llm) as engine:
        first = read(engine.submit(request))
        warm = engine.submit(request)
        assert read(warm) == first
        assert warm.cached_tokens > 0
        statistics = engine.statistics()
        assert statistics.accepted_tokens == statistics.drafted_tokens


def test_the_pages_of_both_models_are_new_after_a_step_that_lost_them(llm):
    with engine_with(llm, llm) as engine:
        for runner in (engine._steps.runner, engine._steps._draft_model._runner):
            runner.storage = None
            (event,) = engine.submit(request_of(llm, PROMPTS[0]))
            assert event.finish_reason == "error"
            assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])


def test_preempted_requests_go_on_with_both_models(llm):
    page = 2 * (2 * 8 * 2 * 128 * 8 * 4)  # of both models
    with engine_with(llm, llm, kv_memory=36 * page, max_context=160, step_tokens=32, max_running=8) as engine:
        assert (engine.pool.num_pages, engine.pool.memory) == (36, 36 * page)
        handles = [engine.submit(request_of(llm, prompt, 60, sampling=ENDLESS)) for prompt in PROMPTS[:2] * 4]
        answers = [read(handle) for handle in handles]
        statistics = engine.statistics()
        assert statistics.preemptions > 0
        assert statistics.accepted_tokens == statistics.drafted_tokens > 0
        assert_at_rest(engine)
    assert answers == answers[:2] * 4


def test_grammars_log_probabilities_stop_strings_and_several_answers(llm, weak):
    requests = [
        request_of(llm, PROMPTS[0], 20, grammar=Grammar.regex("(yes|no|maybe not)( [a-z]{2,5}){3}")),
        request_of(llm, PROMPTS[1], 20, logprobs=2),
        request_of(llm, PROMPTS[0], 24, sampling={"stop": "time"}),
        request_of(llm, PROMPTS[3], 12, n=3),
        request_of(llm, PROMPTS[4], 16, sampling={"presence_penalty": 1.5, "logit_bias": {5: 2.0}}),
    ]
    answers, accepted = [], []
    for draft in (weak, None):
        with engine_with(llm, draft) as engine:
            answers.append([read(handle) for handle in [engine.submit(each) for each in requests]])
            accepted.append(engine.statistics().accepted_tokens)
            assert_at_rest(engine)
    assert answers[0] == answers[1]
    assert accepted[0] > accepted[1] + 20  # those that follow from the grammar


def test_a_cancelled_request_leaves_nothing_behind(llm, weak):
    with engine_with(llm, weak) as engine:
        kept = engine.submit(request_of(llm, PROMPTS[0], 40))
        cancelled = engine.submit(request_of(llm, PROMPTS[1], 400, sampling=ENDLESS))
        next(cancelled)
        cancelled.cancel()
        assert read(cancelled)[0][2] == "cancelled"
        assert read(kept) == alone(llm, PROMPTS[0], 40)
        assert_at_rest(engine)


def test_a_request_that_is_cancelled_before_its_drafts_are_made_ends_alone(llm, weak, monkeypatch):
    with engine_with(llm, weak) as engine:
        compute, ended = engine._steps.compute, []

        def cancel_before(plan, *arguments):
            if not ended and len([row for row in plan.rows if row.drafts]) == 2:
                cancelled.cancel()
                ended.append(plan)
            return compute(plan, *arguments)

        monkeypatch.setattr(engine._steps, "compute", cancel_before)
        cancelled = engine.submit(request_of(llm, PROMPTS[1], 400, sampling=ENDLESS))
        kept = engine.submit(request_of(llm, PROMPTS[0], 40))
        assert read(cancelled)[0][2] == "cancelled"
        assert read(kept) == alone(llm, PROMPTS[0], 40)
        assert len(ended) == 1
        assert_at_rest(engine)


@pytest.mark.slow
def test_sampled_tokens_have_the_distribution_of_the_model(llm, weak):
    """The first three tokens: the second and the third are drafts, accepted or not."""
    given = {"temp": 8.0, "top_k": 2}
    prompt = ids_of(llm, PROMPTS[0])

    def wanted(before):
        logits = llm.model(mx.array([[*prompt, *before]]), 0, llm.model.create_kv_cache())[0, -1]
        probs = probabilities(np.array(logits.astype(mx.float32), np.float64), **given)
        return {int(token): probs[token] for token in np.flatnonzero(probs)}

    expected = {}
    for first, p in wanted(()).items():
        for second, q in wanted((first,)).items():
            expected |= {(first, second, third): p * q * r for third, r in wanted((first, second)).items()}
    sampling = {**given, **ENDLESS}
    with engine_with(llm, weak) as engine:
        handles = [
            engine.submit(request_of(llm, PROMPTS[0], 4, n=32, sampling={**sampling, "seed": seed}))
            for seed in range(16)
        ]
        seen = [tokens[:3] for handle in handles for _, tokens, _ in read(handle)]
        statistics = engine.statistics()
        assert 100 < statistics.accepted_tokens < statistics.drafted_tokens - 30
    numbers = {sequence: number for number, sequence in enumerate(expected)}
    probs = np.array(list(expected.values()))
    assert_drawn_from(np.array([numbers[tokens] for tokens in seen]), probs)


def test_wrong_drafts_of_one_request_pause_no_other(llm, monkeypatch):
    monkeypatch.setattr("tiny_llm.engine.engine.relative_cost", lambda draft, model: 0.9)
    with engine_with(llm, llm, draft_tokens=1) as engine:

        def drafted(n=1):
            before = engine.statistics().drafted_tokens
            read(engine.submit(request_of(llm, PROMPTS[0], 12, n=n, sampling=ENDLESS)))
            return engine.statistics().drafted_tokens - before

        assert 0 < drafted() == drafted() < 12
        assert drafted(2) == 2 * drafted()


def test_a_draft_follows_the_drafts_before_it_and_no_placeholders(llm, monkeypatch):
    """They decide about its penalties, its grammar and its random number."""
    rows = defaultdict(list)

    def watched(logits, samplers, before):
        drafts = propose(logits, samplers, before)
        for sampler, seen, draft in zip(samplers, before, drafts, strict=True):
            rows[sampler].append((list(seen), draft.token_id))
        return drafts

    monkeypatch.setattr("tiny_llm.engine.steps.propose", watched)
    with engine_with(llm, llm, draft_tokens=3) as engine:
        for handle in [engine.submit(request_of(llm, each, 9, sampling=ENDLESS)) for each in PROMPTS[:2]]:
            read(handle)
    assert len(rows) == 2
    for calls in rows.values():
        before = []
        for seen, draft in calls:
            assert seen == (before if seen else [])
            before = [*seen, draft]
        assert max(len(seen) for seen, _ in calls) == 2


def test_a_draft_as_large_as_the_model_is_soon_switched_off(llm, monkeypatch):
    monkeypatch.undo()
    with engine_with(llm, llm) as engine:
        read(engine.submit(request_of(llm, PROMPTS[0], 100, sampling=ENDLESS)))
        assert 0 < engine.statistics().drafted_tokens < 40


def test_models_that_cannot_draft_are_refused(llm):
    other = copy.copy(llm)
    other.tokenizer = copy.copy(llm.tokenizer)
    other.tokenizer.get_vocab = lambda: {"a": 0}
    with pytest.raises(ArgumentError, match=r"^Engine: draft: got another vocabulary, of 1 tokens, expected"):
        Engine(llm, draft=other)
    short = copy.copy(llm)
    short.context = 64
    with pytest.raises(ArgumentError, match=r"^Engine: draft: got a context of 64, expected at least 512"):
        Engine(llm, draft=short, **SIZES)
    far = copy.copy(llm)
    far.device = "gpu"
    with pytest.raises(ArgumentError, match=r"^Engine: draft: got a model on the gpu, expected one"):
        Engine(llm, draft=far)
    with pytest.raises(ArgumentError, match=r"^Engine: draft_tokens: got 17, expected at most 16"):
        Engine(llm, draft=llm, draft_tokens=17)
