"""Pages of earlier requests are found again, and give the same tokens."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Scheduler

from .fake_engine import FakeEngine, assert_answer, assert_at_rest

SIZE = 4


def engine_of(num_pages: int = 50, **options: object) -> FakeEngine:
    return FakeEngine(Scheduler(PagePool(num_pages, SIZE), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [3 * SIZE - 1, 3 * SIZE, 3 * SIZE + 1])
def test_the_same_prompt_again_computes_its_last_token_only(length: int) -> None:
    engine = engine_of()
    prompt = list(range(length))
    first = engine.add(prompt)
    engine.run()
    again = engine.add(prompt)
    plan = engine.step()
    assert (first.cached_tokens, again.cached_tokens) == (0, length - 1)
    assert [(row.start, row.logits) for row in plan.rows] == [(length - 1, 1)]
    engine.run()
    assert again.output_ids == first.output_ids
    assert_answer(again)
    counters = engine.scheduler.counters
    assert (counters.prefix_queries, counters.prefix_hits) == (2 * length, length - 1)
    assert counters.recomputed_tokens == 0
    assert_at_rest(engine, 50)


def test_an_answer_is_found_as_the_beginning_of_the_next_prompt() -> None:
    engine = engine_of()
    first = engine.add([1] * 5, max_tokens=8)
    engine.run()
    second = engine.add([1] * 5 + first.output_ids + [2, 2])
    engine.run()
    assert second.cached_tokens == 12  # of 15; the last token of the first answer was not computed
    assert_answer(second)


def test_a_page_is_not_found_before_the_step_that_fills_it_ends() -> None:
    engine = engine_of()
    for _ in range(2):
        engine.add([1] * 9)
    plan = engine.step()
    assert [(row.start, len(row.token_ids)) for row in plan.rows] == [(0, 9), (0, 9)]
    third = engine.add([1] * 9)
    engine.step()
    assert third.cached_tokens == 8
    engine.run()
    for state in engine.states:
        assert_answer(state)


def test_running_requests_share_the_pages_of_a_beginning() -> None:
    engine = engine_of()
    first = engine.add([1] * 9, max_tokens=9)
    engine.step()
    second = engine.add([1] * 8 + [2], max_tokens=9)
    engine.step()
    assert first.pages[:2] == second.pages[:2]
    assert first.pages[2] != second.pages[2]
    assert engine.scheduler.pool.num_used == 4
    engine.scheduler.cancel(first)
    engine.run()
    assert_answer(second)
    assert_at_rest(engine, 50)


def test_another_salt_shares_nothing() -> None:
    engine = engine_of()
    for salt in ("alice", "bob", "alice"):
        engine.add([1] * 9, salt=salt)
        engine.run()
    assert [state.cached_tokens for state in engine.states] == [0, 0, 8]


def test_without_a_prefix_cache_nothing_is_found() -> None:
    engine = engine_of(prefix_cache=False)
    for _ in range(2):
        engine.add([1] * 9)
        engine.run()
    assert [state.cached_tokens for state in engine.states] == [0, 0]
    assert_at_rest(engine, 50)


def test_the_least_recently_used_pages_are_reused_first() -> None:
    """Six pages: a has two full ones, b too; a is used again; then c needs two blank pages and two more."""
    engine = engine_of(num_pages=6)
    prompts = {"a": [1] * 9, "b": [2] * 9, "c": [3] * 15}
    for name in "aba":
        engine.add(prompts[name], max_tokens=1)
        engine.run()
    assert engine.states[2].cached_tokens == 8
    engine.add(prompts["c"], max_tokens=1)
    engine.run()
    found = {}
    for name in "ab":
        state = engine.add(prompts[name], max_tokens=1)
        engine.run()
        found[name] = state.cached_tokens
        assert_answer(state)
    assert found == {"a": 8, "b": 0}


def test_pages_that_nothing_finds_are_reused_before_older_ones_that_can_be_found() -> None:
    engine = engine_of(num_pages=3, watermark=0)
    engine.add([1] * 5, max_tokens=1)  # a full page and one with a single token
    engine.run()
    cancelled = engine.add([2] * 2)  # has the third page, and no token in it
    engine.plan()
    engine.scheduler.discard(engine.plans[-1])
    assert cancelled.computed == 0
    engine.add([3] * 5, max_tokens=1)
    engine.run()
    again = engine.add([1] * 5, max_tokens=1)
    engine.run()
    assert again.cached_tokens == 4


def test_the_end_of_a_prefix_is_reused_before_its_beginning() -> None:
    engine = engine_of(num_pages=4)
    engine.add([1] * 13, max_tokens=1)
    engine.run()
    engine.add([2] * 5, max_tokens=1)  # takes the blank page and one of the three
    engine.run()
    again = engine.add([1] * 13, max_tokens=1)
    engine.run()
    assert again.cached_tokens == 8
    assert_answer(again)


def test_a_start_takes_no_page_that_it_has_just_found() -> None:
    """Ten tokens need a page more than the two that are found, and only that one is left."""
    engine = engine_of(num_pages=3, watermark=0)
    engine.add([1] * 9, max_tokens=1)
    engine.run()
    again = engine.add([1] * 8 + [2, 2], max_tokens=2)
    engine.run()
    assert again.cached_tokens == 8
    assert_answer(again)
    assert_at_rest(engine, 3)


def test_a_prompt_that_is_scored_finds_no_page_and_its_pages_are_found() -> None:
    """Its tokens need logits, which pages do not have."""
    engine = engine_of()
    for wants_prompt_logprobs in (True, True, False):
        engine.add(range(11), wants_prompt_logprobs=wants_prompt_logprobs)
        engine.run()
    assert [state.cached_tokens for state in engine.states] == [0, 0, 10]
    for state in engine.states:
        assert_answer(state)
    counters = engine.scheduler.counters
    assert (counters.prefix_queries, counters.prefix_hits) == (11, 10)


def test_a_scored_prompt_that_loses_its_pages_after_its_first_token_finds_them_again() -> None:
    engine = FakeEngine(Scheduler(PagePool(7, SIZE), watermark=Fraction(0)))
    engine.add([1] * 11, max_tokens=12)
    scored = engine.add([2] * 9, max_tokens=12, wants_prompt_logprobs=True)
    engine.run()
    assert scored.preemptions == 1
    again = [row for plan in engine.plans for row in plan.rows if row.state is scored and row.is_prefill][-1]
    assert again.start > 0
    assert_answer(scored)


def test_all_answers_to_a_prompt_keep_its_salt() -> None:
    """Also where the first page is full only after the split. Without it the two share their prompt only."""
    engine = engine_of()
    engine.add([1] * 3, max_tokens=6, salt="tenant", choices=2)
    engine.run()
    for state, without in zip(list(engine.states), (0, 3), strict=True):
        known = [*state.prompt_ids, *state.output_ids]
        number = len(engine.states)
        engine.add(known)
        engine.add(known, salt="tenant", choices=2)
        engine.run()
        assert [state.cached_tokens for state in engine.states[number:]] == [without, 8, 8]
