"""Beginnings of pages: the tokens that a cached page has in common with the next prompt are copied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState, Scheduler
from tiny_llm.scheduler.page_allocator import PageAllocator

from ..support.page_allocator import answered, forked, request, tables_of
from .fake_engine import FakeEngine, assert_answer, assert_at_rest

Beginning = tuple[int, int] | None


def ended(num_pages: int, *texts: Sequence[int]) -> PageAllocator:
    """Requests with these tokens have ended, one after the other."""
    tables = tables_of(num_pages)
    for text in texts:
        tables.release(answered(tables, *text))
    return tables


def begun(tables: PageAllocator, state: RequestState) -> tuple[list[int], int, Beginning]:
    """Its pages, the number of tokens that it need not compute, and the pages of its copy."""
    assert tables.start(state, spare=0)
    tables.copy_beginning(state)
    tables.check([state])
    assert state.registered == state.computed // 4
    return list(state.pages), state.computed, state.beginning


@pytest.mark.parametrize(
    ("tokens", "computed", "copy"),
    [
        ([*range(7), 90, 91], 7, (1, 3)),  # the whole end, which has three tokens
        (range(7), 6, (1, 2)),  # the last token is computed
        ([*range(6), 90, 91], 6, (1, 2)),
        (range(6), 5, (1, 2)),
        ([*range(5), 90], 5, (1, 2)),
        (range(5), 4, None),
        ([*range(4), 90, 91], 4, None),
        ([0, 1, 90, 91, 92], 2, (0, 2)),  # in the middle of the full page
        (range(4), 3, (0, 2)),
        ([0], 0, None),
        ([90, 1, 2, 3], 0, None),
    ],
)
def test_what_a_request_with_seven_tokens_leaves_is_found_to_the_token(
    tokens: Sequence[int], computed: int, copy: Beginning
) -> None:
    tables = ended(9, range(7))
    pages, known, copied = begun(tables, request(*tokens))
    assert known == computed
    assert copied == (None if copy is None else (copy[0], pages[computed // 4]))


def test_the_page_that_is_copied_stays_as_it_is() -> None:
    """It can be copied again, and it is still free."""
    tables = ended(9, range(7))
    for _ in range(2):
        pages, computed, copied = begun(tables, request(*range(7), 90, 91))
        assert (computed, copied) == (7, (1, pages[1]))
        assert (tables.pool.owners(1), tables.pool.has_content(1)) == (0, True)
        for page in pages:
            tables.pool.release(page, keep=page in (tables._index or ()))


def test_another_salt_finds_no_beginning() -> None:
    tables = ended(9, range(3))
    assert begun(tables, RequestState("", range(4), 9, salt="alice"))[1:] == (0, None)


def test_a_prompt_that_is_scored_copies_nothing() -> None:
    """Nor does one whose last start copied a page, before it lost its pages."""
    tables, state = ended(9, range(7)), request(*range(9))
    assert begun(tables, state)[1] == 7
    tables.release(state)
    state.wants_prompt_logprobs = True
    assert begun(tables, state)[1:] == (0, None)


def test_a_newer_end_takes_the_place_of_an_older_one_which_is_blank_then() -> None:
    tables = ended(9, range(7), [*range(5), 90])
    assert (tables.pool.has_content(1), tables.pool.has_content(2)) == (False, True)
    assert begun(tables, request(*range(7), 91)) == ([0, 1], 5, (2, 1))


def test_a_page_that_was_reused_is_not_copied() -> None:
    """The end is the oldest kept page. The new request itself takes it."""
    tables = ended(2, range(7))
    assert begun(tables, request(*range(7), 90)) == ([0, 1], 4, None)


def test_a_request_that_lost_its_pages_finds_its_own_end() -> None:
    """It had 7 computed tokens, and the one after them."""
    tables = tables_of(9)
    state = answered(tables, *range(7))
    state.token_ids.append(90)
    tables.release(state)
    assert begun(tables, state)[1:] == (7, (1, 2))


def test_the_end_of_a_fork_is_found_while_the_other_one_writes_on() -> None:
    tables = tables_of(9)
    first, second = forked(tables, *range(6))
    tables.release(first)
    assert (tables.pool.owners(1), second.computed) == (1, 6)
    second.token_ids.extend([6, 7])
    second.computed = 8
    tables.register(second)
    tables.check([second])
    tables.release(second)
    assert begun(tables, request(*range(7), 90))[1:] == (7, (1, 2))


def test_without_a_prefix_cache_no_end_is_kept() -> None:
    tables = PageAllocator(PagePool(4, 4), None)
    tables.release(answered(tables, *range(7)))
    assert not any(tables.pool.has_content(page) for page in range(4))
    state = request(*range(7))
    assert tables.start(state, spare=0)
    tables.copy_beginning(state)
    assert (state.computed, state.beginning) == (0, None)


def test_pages_that_are_forgotten_are_blank() -> None:
    tables = ended(4, range(7))
    tables.forget()
    assert not any(tables.pool.has_content(page) for page in range(4))
    tables.check([])


def engine_of(num_pages: int = 50) -> FakeEngine:
    return FakeEngine(Scheduler(PagePool(num_pages, 4), watermark=0))


def test_each_turn_of_a_conversation_computes_its_new_tokens_only() -> None:
    """And the last token of the answer before, which was not computed."""
    engine, text = engine_of(), [1] * 6
    for turn in range(5):
        state = engine.add(text, max_tokens=3)
        engine.run()
        assert_answer(state)
        assert state.cached_tokens == (len(text) - 3 if turn else 0)
        text = [*text, *state.output_ids, 2, 2]
    counters = engine.scheduler.counters
    assert counters.prefix_hits == sum(state.cached_tokens for state in engine.states)
    assert counters.prefill_tokens == counters.prefix_queries - counters.prefix_hits
    assert_at_rest(engine, 50)


def test_requests_that_start_together_copy_the_same_page() -> None:
    engine = engine_of()
    engine.add([1] * 7, max_tokens=1)
    engine.run()
    states = [engine.add([1] * 7 + [token], max_tokens=3) for token in (0, 1, 2)]
    plan = engine.step()
    assert [state.cached_tokens for state in states] == [7, 7, 7]
    assert plan.copies == tuple((1, state.pages[1]) for state in states)
    engine.run()
    for state in states:
        assert_answer(state)


def test_a_copied_page_may_be_written_by_a_request_of_the_same_step() -> None:
    """Its source is free, and the second request takes it: all copies come before all rows."""
    engine = engine_of(num_pages=4)
    engine.add([1] * 7, max_tokens=1)
    engine.run()
    first, second = engine.add([1] * 7 + [2], max_tokens=2), engine.add([2] * 8, max_tokens=2)
    plan = engine.step()
    assert plan.copies == ((1, first.pages[1]),)
    assert 1 in second.pages
    engine.run()
    for state in (first, second):
        assert_answer(state)


def test_a_copy_that_was_not_made_is_not_found() -> None:
    """Whether its request was cancelled before the step failed or not."""
    for cancelled in (True, False):
        engine = engine_of()
        engine.add([1] * 7, max_tokens=1)
        engine.run()
        state = engine.add([1] * 7 + [2])
        plan = engine.plan()
        assert len(plan.copies) == 1
        engine.fail(plan)
        if cancelled:
            engine.scheduler.cancel(state)
        engine.scheduler.discard(plan)
        again = engine.add([1] * 7 + [2])
        engine.run()
        assert again.cached_tokens == 4
        assert_answer(again)
        assert_at_rest(engine, 50)
