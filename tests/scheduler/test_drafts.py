"""Drafts are verified in one row; what is rejected leaves no trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState, Scheduler

from .fake_engine import VOCABULARY, FakeEngine, assert_answer, assert_at_rest, continuation


def drafts(right: int, wrong: int) -> Callable[[RequestState], list[int]]:
    """So many right tokens, then wrong ones."""

    def draft(state: RequestState) -> list[int]:
        tokens = continuation(state.token_ids, state.choice, right + 1)
        return tokens[:right] + [(tokens[right] + 1) % VOCABULARY] * wrong

    return draft


def engine_of(right: int, wrong: int, num_pages: int = 50, **options: object) -> FakeEngine:
    scheduler = Scheduler(PagePool(num_pages, 4), **options)  # type: ignore[arg-type]
    return FakeEngine(scheduler, drafts(right, wrong))


@pytest.mark.parametrize("length", [3, 4, 5])
@pytest.mark.parametrize(("right", "wrong"), [(0, 1), (0, 6), (1, 0), (3, 2), (6, 0), (9, 9)])
def test_accepted_drafts_save_steps_and_rejected_ones_are_rewound(
    length: int, right: int, wrong: int
) -> None:
    engine = engine_of(right, wrong)
    state = engine.add([1] * length, max_tokens=20)
    engine.step()
    while engine.scheduler.running:
        assert len(engine.plans) <= 20
        assert len(state.pages) == -(-state.computed // 4)
        engine.step()
    assert state.num_output == 20
    assert_answer(state)
    assert len(engine.plans) == 1 + -(-19 // (1 + right))
    counters = engine.scheduler.counters
    assert counters.accepted_tokens == 19 - (len(engine.plans) - 1)
    assert counters.recomputed_tokens == 0
    assert_at_rest(engine, 50)


def test_a_row_has_the_last_token_and_its_drafts_with_logits_for_each() -> None:
    engine = engine_of(2, 1)
    state = engine.add([1] * 3, max_tokens=9)
    engine.step()
    row = engine.plan().rows[0]
    assert (row.start, row.stop, row.logits) == (3, 7, 4)
    assert list(row.token_ids) == [state.output_ids[0], *row.drafts]
    assert list(row.drafts) == list(state.drafts)
    assert list(row.slots) == [3, 4, 5, 6]


def test_an_answer_does_not_become_too_long() -> None:
    engine = engine_of(9, 0)
    state = engine.add([1] * 3, max_tokens=4)
    engine.step()
    assert engine.step().rows[0].logits == 3
    assert state.num_output == 4


def test_drafts_leave_half_of_the_budget_to_prefill() -> None:
    engine = engine_of(0, 9, step_tokens=8, max_running=2)
    engine.add([1] * 3, max_tokens=20)
    engine.step()
    assert [len(row.token_ids) for row in engine.step().rows] == [8]
    engine.add([2] * 20)
    for _ in range(2):  # while it waits, and between its chunks
        assert [len(row.token_ids) for row in engine.step().rows] == [4, 4]


def test_drafts_preempt_nobody() -> None:
    """Three pages: each request has one, and the drafts of the older one fill the last."""
    engine = engine_of(0, 9, num_pages=3, watermark=0)
    for number in range(2):
        engine.add([number] * 3, max_tokens=3 + number)
    engine.step()
    plan = engine.step()
    assert [len(row.token_ids) for row in plan.rows] == [2, 1]
    assert plan.preempted == ()
    engine.run()
    for state in engine.states:
        assert_answer(state)
    assert_at_rest(engine, 3)


def test_drafts_before_a_fork_are_left_out() -> None:
    """The last token of a prompt with several answers may be alone in its step."""
    engine = engine_of(2, 0, step_tokens=4, max_running=2)
    engine.add([1] * 5, max_tokens=5, choices=2)
    engine.step()
    assert [len(row.token_ids) for row in engine.step().rows] == [1]
    engine.run()
    for state in engine.states:
        assert_answer(state)


def test_tokens_that_do_not_follow_the_drafts_are_refused() -> None:
    engine = engine_of(2, 0)
    state = engine.add([1] * 3, max_tokens=9)
    engine.step()
    plan = engine.plan()
    right = list(plan.rows[0].drafts)
    for tokens, reason in [
        ([], "got 0 tokens for request 0, expected 1 to 3"),
        ([*right, 0, 0], "got 4 tokens for request 0, expected 1 to 3"),
        ([right[0] + 1, right[1]], "a beginning of its drafts"),
    ]:
        with pytest.raises(ValueError, match=reason):
            engine.scheduler.commit(plan, {state: tokens})
    assert state.num_output == 1
    engine.commit(plan, {state: [*right, 0]})
    assert state.num_output == 4


def test_a_stop_among_the_accepted_tokens_may_commit_fewer() -> None:
    engine = engine_of(3, 0)
    state = engine.add([1] * 3, max_tokens=9)
    engine.step()
    plan = engine.plan()
    engine.commit(plan, {state: engine.compute(plan)[state][:2]})
    assert (state.num_output, state.computed) == (3, 5)
    assert state.drafts == ()  # those of the step are used up
    engine.run()
    assert_answer(state)


def test_placeholders_are_replaced_before_the_tokens_are_committed() -> None:
    engine = engine_of(0, 3)
    state = engine.add([1] * 3, max_tokens=9)
    engine.step()
    row = engine.plan().rows[0]
    newest = row.token_ids[0]
    for place, token in enumerate((7, 8, 9)):
        row.set_draft(place, token)
    assert list(row.token_ids) == [newest, 7, 8, 9]
    assert list(row.drafts) == [7, 8, 9]
    engine.scheduler.commit(engine.plans[-1], {state: [7, 8, 1]})
    assert state.output_ids == [newest, 7, 8, 1]
