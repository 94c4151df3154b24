"""A request that loses its pages continues as if nothing had happened, and somebody always progresses."""

from __future__ import annotations

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState, Scheduler, Status

from .fake_engine import FakeEngine, assert_answer, assert_at_rest


def crowded(num_pages: int, *lengths: int, max_tokens: int = 12, **options: object) -> FakeEngine:
    """Prompts of these lengths without a common beginning, in pages of 4; they start without any reserve."""
    scheduler = Scheduler(PagePool(num_pages, 4), watermark=0, **options)  # type: ignore[arg-type]
    engine = FakeEngine(scheduler)
    for number, length in enumerate(lengths):
        engine.add([10 + number] * length, max_tokens)
    return engine


def preempted(engine: FakeEngine) -> list[str]:
    return [state.id for plan in engine.plans for state in plan.preempted]


def test_the_newest_request_is_preempted_and_its_answer_stays() -> None:
    engine = crowded(6, 7, 7, 7)
    while not preempted(engine):
        engine.step()
    newest = engine.states[2]
    assert (preempted(engine), newest.status, newest.preemptions) == (["2"], Status.WAITING, 1)
    assert (len(newest.pages), newest.computed, newest.num_output) == (0, 0, 2)
    engine.run()
    for state in engine.states:
        assert state.num_output == 12
        assert_answer(state)
    assert engine.scheduler.counters.preemptions == len(preempted(engine))
    assert_at_rest(engine, 6)


def test_a_request_in_the_middle_of_its_prompt_is_preempted() -> None:
    engine = crowded(4, 3, 12, max_tokens=5, step_tokens=3, max_running=2)
    while not preempted(engine):
        engine.step()
    second = engine.states[1]
    assert (second.num_output, second.furthest) == (0, 2)
    engine.run()
    assert [state.num_output for state in engine.states] == [5, 5]
    assert engine.scheduler.counters.prefix_queries == 3 + 12  # at the first start only
    for state in engine.states:
        assert_answer(state)


def test_the_oldest_request_is_never_preempted() -> None:
    """Alone they need 5 pages each, and there are 5."""
    engine = crowded(5, 8, 8, 8, 8, max_tokens=13)
    engine.run()
    assert "0" not in preempted(engine)
    oldest = [state.id for state in engine.states if state.preemptions == 0]
    assert oldest[0] == "0"
    for state in engine.states:
        assert state.num_output == 13
        assert_answer(state)


def test_a_request_that_lacks_a_page_and_is_the_newest_waits_itself() -> None:
    engine = crowded(4, 7, 8, max_tokens=9)
    engine.step()
    plan = engine.step()
    assert [row.state.id for row in plan.rows] == ["0"]
    assert preempted(engine) == ["1"]
    assert plan.started == ()
    engine.run()
    for state in engine.states:
        assert_answer(state)


def test_preempted_requests_go_on_before_those_that_waited_already() -> None:
    engine = crowded(6, 7, 7, 7, 7)
    while not preempted(engine):
        engine.step()
    assert [state.id for state in engine.scheduler.waiting] == ["2", "3"]
    engine.run()
    starts = [state.id for plan in engine.plans for state in plan.started]
    assert starts.index("3") > len(starts) - 1 - starts[::-1].index("2")


@pytest.mark.parametrize("step_tokens", [512, 5])
def test_tokens_that_are_computed_again_are_counted(step_tokens: int) -> None:
    """Without a prefix cache these are all that a request had computed; once, also in chunks."""
    engine = crowded(6, 7, 7, 7, prefix_cache=False, step_tokens=step_tokens, max_running=3)
    lost = 0
    while engine.scheduler.running or engine.scheduler.waiting:
        computed = {state: state.computed for state in engine.scheduler.running}
        lost += sum(computed[state] for state in engine.step().preempted)
    assert lost > 0
    assert engine.scheduler.counters.recomputed_tokens == lost
    prompts = sum(len(state.prompt_ids) for state in engine.states)
    counters = engine.scheduler.counters
    resumed = sum(state.preemptions for state in engine.states)
    assert counters.prefill_tokens == prompts + lost + resumed  # a resumed prefill ends with the newest token
    assert counters.decode_tokens == sum(state.num_output - 1 for state in engine.states) - resumed


def test_a_resumed_request_finds_its_own_pages() -> None:
    """The oldest ends soon after it took one page of the newest, so the others still have their content."""
    engine = crowded(6, 3)
    engine.scheduler.cancel(engine.states.pop())
    engine.add([1] * 8, max_tokens=2)
    newest = engine.add([2] * 15, max_tokens=6)
    assert len(engine.step().rows) == 2
    while not newest.preemptions:
        engine.step()
    engine.run()
    assert newest.num_output == 6
    assert_answer(newest)
    assert newest.preemptions == 1
    assert engine.scheduler.counters.recomputed_tokens < newest.furthest - 6
    assert newest.cached_tokens == 0  # what it found again was no saving for its user


def test_a_plan_does_not_start_what_it_preempts() -> None:
    """The newest of two equal requests would find all its tokens in the pages of the older one."""
    engine = FakeEngine(Scheduler(PagePool(7, 4), watermark=0))
    older = engine.add([1] * 12, max_tokens=8)
    newer = engine.add([1] * 12, max_tokens=8)
    third = engine.add([2] * 3, max_tokens=2)
    while not third.preemptions and not newer.preemptions:
        plan = engine.step()
    assert plan.started == ()
    engine.run()
    for state in (older, newer, third):
        assert_answer(state)


def test_the_same_answers_with_and_without_preemption() -> None:
    answers = []
    for num_pages in (5, 100):
        engine = crowded(num_pages, 3, 7, 8, 9, 12, max_tokens=8)
        engine.run()
        answers.append([state.output_ids for state in engine.states])
        assert (engine.scheduler.counters.preemptions > 0) == (num_pages == 5)
    assert answers[0] == answers[1]


def test_every_request_ends_while_new_ones_keep_coming() -> None:
    """Each waits at most for those that came before it."""
    engine = crowded(5, 8, 8, max_tokens=9)
    first: list[RequestState] = list(engine.states)
    for number in range(200):
        if number % 3 == 0:
            engine.add([30 + number] * 5, max_tokens=4)
        engine.step()
    assert [state.status for state in first] == [Status.FINISHED] * 2
    ended = [state.status is Status.FINISHED for state in engine.states]
    assert ended == sorted(ended, reverse=True)
