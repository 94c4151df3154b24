"""An error of one answer of a list: the others are complete, and each has its own error."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import pytest

from tiny_llm import LLM, AnswerError, Grammar, GrammarError
from tiny_llm.engine.batch import answer_all
from tiny_llm.generation.result import Result
from tiny_llm.sampling.grammar import state as grammar_state
from tiny_llm.sampling.grammar.state import GrammarState

from ..support.engine_requests import PROMPTS, request_of
from ..support.gpu import on_a_gpu

pytestmark = pytest.mark.usefixtures("on_the_cpu")

LETTERS = Grammar.regex("[a-z ]{1,40}")


@pytest.fixture
def llm(cpu_llm: LLM) -> LLM:
    """A GPU answers lists without an engine."""
    return cpu_llm


@pytest.mark.parametrize("device", [nullcontext, on_a_gpu], ids=["engine", "dense caches"])
def test_a_grammar_error_leaves_the_other_answers(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, device: Any
) -> None:
    requests = [request_of(llm, prompt, 6, grammar=LETTERS) for prompt in PROMPTS[:4]]
    with device():
        expected = answer_all(llm, requests, batch_size=2)
    allowed, states = GrammarState.allowed, []

    def explode(state: GrammarState, held_back: Any = ()) -> Any:
        if state not in states:
            states.append(state)
        state.calls = getattr(state, "calls", 0) + 1
        if states.index(state) == 1 and state.calls == 3:
            raise GrammarError("too many items")
        return allowed(state, held_back)

    monkeypatch.setattr(GrammarState, "allowed", explode)
    ended: list[tuple[int, Result]] = []
    with device(), pytest.raises(GrammarError, match="too many items") as caught:
        answer_all(llm, requests, batch_size=2, finished=lambda *pair: ended.append(pair))
    results = caught.value.results
    (failed,) = [index for index, result in enumerate(results) if result.error is not None]
    assert results[failed].finish_reason is None
    assert isinstance(results[failed].error, GrammarError)
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if index != failed:
            assert (result.text, result.token_ids) == (wanted.text, wanted.token_ids)
    assert sorted(ended, key=lambda pair: pair[0]) == list(enumerate(results))  # each once


def test_a_grammar_that_is_given_up_within_a_list_ends_no_other_answer(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later requests with it are refused when they are submitted."""
    slow = Grammar.regex("[a-z ]{1,40} given up")
    monkeypatch.setattr(grammar_state, "MOST", 0.0)
    monkeypatch.setattr(grammar_state, "PER_TOKEN", 0.0)
    requests = [request_of(llm, prompt, 6, grammar=slow) for prompt in (PROMPTS * 3)[:9]]
    requests[4] = request_of(llm, PROMPTS[4], 6)
    with pytest.raises(GrammarError, match="takes too much time for each token") as caught:
        answer_all(llm, requests, batch_size=1)
    assert [result.error is None for result in caught.value.results] == [index == 4 for index in range(9)]
    assert caught.value.results[4].finish_reason == "length"


def test_an_error_keeps_its_results_when_it_is_copied() -> None:
    results = (1, 2)
    error = GrammarError("a reason").with_results(results)
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert isinstance(each, AnswerError)
        assert (type(each), each.reason, each.results, str(each)) == (
            GrammarError,
            "a reason",
            results,
            "the answer cannot follow its grammar: a reason",
        )
