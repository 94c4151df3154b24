"""Several answers to one prompt: computed once, pages shared, copied before they differ."""

from __future__ import annotations

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Scheduler

from .fake_engine import FakeEngine, assert_answer, assert_at_rest

SIZE = 4


def engine_of(num_pages: int = 50, **options: object) -> FakeEngine:
    return FakeEngine(Scheduler(PagePool(num_pages, SIZE), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "copies"), [(2 * SIZE - 1, 2), (2 * SIZE, 0), (2 * SIZE + 1, 2), (1, 2)])
def test_the_prompt_is_computed_once_and_its_last_page_is_copied(length: int, copies: int) -> None:
    """The last of three owners of a page writes to it without a copy."""
    engine = engine_of()
    engine.add([1] * length, max_tokens=6, choices=3)
    assert [len(row.token_ids) for row in engine.step().rows] == [length]
    shared = -(-length // SIZE)
    assert engine.scheduler.pool.num_used == shared
    engine.scheduler.check()
    plan = engine.step()
    assert (len(plan.rows), len(plan.copies)) == (3, copies)
    assert [row.state.choice for row in plan.rows] == [0, 1, 2]
    engine.run()
    assert [state.num_output for state in engine.states] == [6, 6, 6]
    for state in engine.states:
        assert_answer(state)
    assert engine.scheduler.counters.prefill_tokens == length
    assert_at_rest(engine, 50)


def test_answers_are_preempted_one_by_one_the_last_choice_first() -> None:
    engine = engine_of(num_pages=6, watermark=0)
    engine.add([1] * 7, max_tokens=14, choices=3)
    engine.run()
    preempted = [state.choice for plan in engine.plans for state in plan.preempted]
    assert preempted[:1] == [2]
    assert engine.scheduler.counters.preemptions == len(preempted)
    assert 0 not in preempted
    for state in engine.states:
        assert state.num_output == 14
        assert_answer(state)
    assert_at_rest(engine, 6)


def test_an_answer_that_ends_leaves_the_pages_to_the_others() -> None:
    engine = engine_of()
    engine.add([1] * 6, max_tokens=9, choices=2)
    engine.step()
    first, second = engine.states
    engine.scheduler.cancel(first)
    engine.scheduler.check()
    assert engine.step().copies == ()
    engine.run()
    assert second.num_output == 9
    assert_answer(second)


def test_a_choice_reserves_its_place_before_the_fork() -> None:
    engine = engine_of(max_running=4)
    engine.add([1] * 3, choices=3)
    engine.add([2] * 3, choices=2)
    engine.add([3] * 3)
    assert [state.id for state in engine.step().started] == ["0"]
    engine.run()
    with pytest.raises(ValueError, match="choices: got 5, expected at most 4"):
        engine.add([1], choices=5)


def test_a_prompt_in_chunks_forks_at_its_end() -> None:
    engine = engine_of(step_tokens=3, max_running=3)
    engine.add([1] * 7, choices=2)
    for _ in range(2):
        engine.step()
        assert len(engine.states) == 1
    engine.step()
    assert [state.num_output for state in engine.states] == [1, 1]
    engine.run()
    for state in engine.states:
        assert_answer(state)


def test_answers_come_before_the_requests_that_arrived_later() -> None:
    engine = engine_of()
    engine.add([1] * 3, choices=2)
    engine.add([2] * 3)
    engine.step()
    order = [(state.id, state.choice) for state in engine.scheduler.running]
    assert order == [("0", 0), ("0", 1), ("1", 0)]


def test_a_fork_is_refused_before_the_end_of_the_prompt_and_after_commit() -> None:
    scheduler = Scheduler(PagePool(50, SIZE), step_tokens=4, max_running=2)
    engine = FakeEngine(scheduler)
    state = engine.add([1] * 6, choices=2)
    plan = scheduler.plan()
    with pytest.raises(ValueError, match="fork: state: got 0, expected a request whose prompt ends"):
        scheduler.fork(state)
    scheduler.commit(plan, {})
    with pytest.raises(ValueError, match="fork: state"):
        scheduler.fork(state)
    scheduler.plan()
    scheduler.cancel(state)
    with pytest.raises(ValueError, match="fork: state"):
        scheduler.fork(state)
    scheduler.check()


def test_tokens_without_a_fork_are_refused_and_nothing_changes() -> None:
    scheduler = Scheduler(PagePool(50, SIZE))
    engine = FakeEngine(scheduler)
    state = engine.add([1] * 6, choices=2)
    plan = scheduler.plan()
    with pytest.raises(
        ValueError, match="commit: tokens: got 2 answers in request 0, expected a call of fork"
    ):
        scheduler.commit(plan, {state: [1]})
    assert state.computed == 0
    engine.commit(plan, engine.compute(plan))
    assert [each.num_output for each in engine.states] == [1, 1]


def test_one_answer_needs_no_fork() -> None:
    scheduler = Scheduler(PagePool(50, SIZE))
    state = FakeEngine(scheduler).add([1])
    assert scheduler.fork(state) == [state]


def test_a_prompt_that_has_not_split_yet_counts_for_all_its_answers() -> None:
    engine = FakeEngine(Scheduler(PagePool(50, 4), step_tokens=8, max_running=3))
    for number in range(3):
        engine.add([number] * 20, max_tokens=5, choices=2)
    most = 0
    while engine.scheduler.running or engine.scheduler.waiting:
        engine.step()
        most = max(most, len(engine.scheduler.running))
    assert most == 2  # two more would be four
