"""Drafts of an answer with a grammar: tried and removed again, with masks, and without time of their own."""

from __future__ import annotations

import itertools

import pytest

from tiny_llm import GrammarError, Sampling
from tiny_llm.sampling.grammar import Grammar, start_grammar
from tiny_llm.sampling.grammar import state as grammar_state
from tiny_llm.sampling.grammar.state import Trial
from tiny_llm.sampling.rows import RowSampler

from .grammars import PATTERN


def test_tokens_that_are_tried_are_removed_whatever_happens(tokenizer):
    state = start_grammar(tokenizer, PATTERN)
    state.accept(tokenizer.encode("y"))
    before = state.allowed()
    tokens = [*tokenizer.encode("es!"), tokenizer.eos_token_id, tokenizer.eos_token_id]

    def try_and_fail(trial: Trial) -> None:
        trial.accept(tokens)
        assert state.is_complete
        raise KeyError("a fault beside the grammar")

    with pytest.raises(KeyError), state.trying() as trial:
        try_and_fail(trial)
    assert not state.is_complete
    assert state.allowed() == before


@pytest.mark.parametrize("given", [{}, {"min_tokens": 3}], ids=str)
def test_masks_are_those_along_the_drafts_and_leave_the_state_where_it_was(tokenizer, given):
    grammar = Grammar.regex("a{1,6}")
    (a,) = tokenizer.encode("a")

    def row_after(count: int) -> RowSampler:
        state = start_grammar(tokenizer, grammar)
        row = RowSampler(Sampling(**given), 1, 0, [1], tokenizer.eos_token_ids, state)
        row.accept([a] * count)
        return row

    row = row_after(1)
    assert row.grammar is not None
    before = row.grammar.allowed()
    for drafts, valid in (([a, a, a], 3), ([a, 77, a], 1), ([], 0)):
        expected = [row_after(1 + place).masks([])[0] for place in range(valid + 1)]
        assert row.masks(drafts) == expected + [None] * (len(drafts) - valid)
        assert row.mask_after(drafts) == row.masks(drafts)[-1]
    assert row.grammar.allowed() == before


def test_tokens_of_an_answer_earn_time_and_drafts_do_not(tokenizer, monkeypatch):
    """An answer whose drafts are always wrong would else earn more than its masks take."""

    def row_of(text: str) -> RowSampler:
        state = start_grammar(tokenizer, Grammar.regex(text))
        return RowSampler(Sampling(), 1, 0, [1], tokenizer.eos_token_ids, state)

    steady, drafting = row_of("a*"), row_of("b*")
    (a,), (b,) = tokenizer.encode("a"), tokenizer.encode("b")
    tick = grammar_state.PER_TOKEN / 8  # between two looks at the clock, so of each call of llguidance
    clock = itertools.count(0.0, tick)
    monkeypatch.setattr(grammar_state.time, "thread_time", lambda: next(clock))
    calls = int(grammar_state.MOST / tick)
    for _ in range(calls):
        steady.masks([])
        steady.accept([a])
    with pytest.raises(GrammarError, match=r"takes too much time for each token$"):
        list(map(drafting.masks, [[b] * 4] * calls))
