"""Refusals at the door, cancels, deadlines, failed steps: pages come back, once."""

from __future__ import annotations

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.errors import QueueFull
from tiny_llm.scheduler import RequestState, Scheduler, Status

from .fake_engine import FakeEngine, assert_answer, assert_at_rest


def engine_of(num_pages: int = 10, **options: object) -> FakeEngine:
    return FakeEngine(Scheduler(PagePool(num_pages, 4), **options))  # type: ignore[arg-type]


def test_a_request_that_just_fits_runs_and_a_longer_one_is_refused() -> None:
    engine = engine_of(num_pages=3)
    state = engine.add([1] * 5, max_tokens=8)
    engine.run()
    assert state.num_output == 8
    with pytest.raises(
        ValueError, match=r"Scheduler.add: max_tokens: got 9, expected at most 8 after this prompt"
    ):
        engine.add([1] * 5, max_tokens=9)
    with pytest.raises(ValueError, match=r"Scheduler.add: prompt_ids: got 13 tokens, expected at most 12"):
        engine.add([1] * 13)
    assert_at_rest(engine, 3)


def test_a_full_queue_is_refused_until_a_request_starts() -> None:
    engine = engine_of(max_waiting=2)
    engine.add([1])
    engine.add([2])
    with pytest.raises(QueueFull, match="the queue of 2 waiting requests is full") as refused:
        engine.add([3])
    assert refused.value.limit == 2
    with pytest.raises(ValueError, match="prompt_ids"):  # it can never run: no reason to try again
        engine.add([3] * 100)
    engine.step()
    engine.add([3])
    engine.run()
    assert len(engine.states) == 3


@pytest.mark.parametrize("when", ["waiting", "prefill", "decode", "planned", "ended"])
def test_a_cancel_returns_the_pages_once(when: str) -> None:
    engine = engine_of(step_tokens=4, max_running=2)
    scheduler = engine.scheduler
    state = engine.add([1] * 6, max_tokens=3)
    for _ in range({"prefill": 1, "decode": 3, "ended": 4}.get(when, 0)):
        engine.step()
    plan = engine.plan() if when == "planned" else None
    assert scheduler.cancel(state) == (when != "ended")
    assert not scheduler.cancel(state)
    assert (state.status, state.reason) == (Status.FINISHED, "length" if when == "ended" else "cancelled")
    if plan:
        engine.commit(plan, {})
    assert_at_rest(engine, 10)


def test_a_cancel_after_the_forward_pass_wins_over_its_tokens() -> None:
    engine = engine_of()
    state, other = engine.add([1] * 6), engine.add([2] * 6)
    plan = engine.plan()
    tokens = engine.compute(plan)
    engine.scheduler.cancel(state)
    engine.scheduler.commit(plan, tokens)
    assert (state.num_output, other.num_output) == (0, 1)
    engine.run()
    assert_answer(other)


def test_queues_can_be_read_while_their_requests_end() -> None:
    engine = engine_of(max_running=2)
    for number in range(4):
        engine.add([number] * 3)
    engine.step()
    for queue in (engine.scheduler.running, engine.scheduler.waiting):
        assert [engine.scheduler.cancel(state) for state in queue] == [True, True]
    assert_at_rest(engine, 10)


def test_requests_past_their_deadline_end_where_they_are() -> None:
    engine = engine_of(max_running=1)
    early, late, patient = (engine.add([1] * 6, max_tokens=9, deadline=at) for at in (2.0, 2.5, None))
    engine.step(now=1.0)
    assert engine.step(now=1.9).expired == ()
    plan = engine.step(now=2.5)
    assert plan.expired == (early, late)
    assert [state.reason for state in (early, late, patient)] == ["deadline", "deadline", None]
    assert plan.started == (patient,)
    engine.run()
    assert_answer(early)
    assert_at_rest(engine, 10)


def test_a_failed_step_ends_its_requests_and_poisons_no_page() -> None:
    engine = engine_of(num_pages=10, max_running=2)
    engine.add([1] * 9, choices=2)
    waiting = engine.add([1] * 9)
    plan = engine.plan()
    engine.spoil(plan)
    assert engine.scheduler.discard(plan) == [plan.rows[0].state]
    engine.run()
    assert engine.states[0].reason == "error"
    assert waiting.cached_tokens == 0
    assert_answer(waiting)
    assert_at_rest(engine, 10)


def test_a_step_that_fails_after_the_fork_ends_all_answers() -> None:
    engine = engine_of()
    engine.add([1] * 9, choices=2)
    plan = engine.plan()
    engine.compute(plan)
    assert engine.scheduler.discard(plan, "stopped") == engine.states
    assert [state.reason for state in engine.states] == ["stopped", "stopped"]
    assert_at_rest(engine, 10)


def test_plans_and_commits_take_turns() -> None:
    engine = engine_of()
    engine.add([1] * 3)
    plan = engine.plan()
    with pytest.raises(ValueError, match=r"Scheduler.plan: got a plan without commit or discard"):
        engine.plan()
    engine.commit(plan, engine.compute(plan))
    for again in (engine.scheduler.discard, lambda plan: engine.scheduler.commit(plan, {})):
        with pytest.raises(ValueError, match="plan: got another plan, expected the one planned last"):
            again(plan)


def test_pages_that_are_computed_with_cannot_be_forgotten() -> None:
    engine = engine_of()
    engine.add([1] * 3)
    engine.step()
    with pytest.raises(ValueError, match="forget_pages: got running requests"):
        engine.scheduler.forget_pages()


def test_tokens_for_the_wrong_requests_are_refused() -> None:
    engine = engine_of(step_tokens=4, max_running=2)
    first, second = engine.add([1] * 3, max_tokens=2), engine.add([2] * 6)
    plan = engine.plan()
    for tokens, reason in [
        ({}, "got 0 tokens for request 0, expected 1 to 1"),
        ({first: [1], second: [1]}, "got tokens of 2 requests, expected those of 1 rows with logits"),
        ({first: [1, 1]}, "got 2 tokens for request 0, expected 1 to 1"),
    ]:
        with pytest.raises(ValueError, match=reason):
            engine.scheduler.commit(plan, tokens)
    assert (first.num_output, first.computed) == (0, 0)
    engine.scheduler.commit(plan, {first: [1]})
    for expected in (2, 3):
        plan = engine.scheduler.plan()
        tokens = {row.state: [1] for row in plan.rows if row.logits}
        if expected == 3:
            with pytest.raises(ValueError, match="got token 3 of request 0, expected at most max_tokens, 2"):
                engine.scheduler.commit(plan, tokens)
        else:
            engine.scheduler.commit(plan, tokens)


def test_states_are_added_once_and_end_only_after_that() -> None:
    scheduler = Scheduler(PagePool(10, 4))
    state = RequestState("a", [1], 1)
    with pytest.raises(ValueError, match="finish: state: got the new request a"):
        scheduler.cancel(state)
    scheduler.add(state)
    with pytest.raises(ValueError, match="add: state: got a request that is waiting"):
        scheduler.add(state)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"prompt_ids": []}, "prompt_ids: got no token"),
        ({"prompt_ids": [2**31]}, "prompt_ids"),
        ({"max_tokens": 0}, "max_tokens: got 0, expected at least 1"),
        ({"choices": 0}, "choices: got 0, expected at least 1"),
    ],
)
def test_wrong_requests_are_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=f"RequestState: {reason}"):
        RequestState(**{"id": "a", "prompt_ids": [1], "max_tokens": 1, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"step_tokens": 3, "max_running": 4}, "step_tokens: got 3, expected at least max_running, 4"),
        ({"watermark": -1}, "watermark: got -1, expected at least 0"),
        ({"max_waiting": 0}, "max_waiting: got 0, expected at least 1"),
        ({"max_running": 0}, "max_running: got 0, expected at least 1"),
    ],
)
def test_wrong_limits_are_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=f"Scheduler: {reason}"):
        Scheduler(PagePool(10, 4), **options)  # type: ignore[arg-type]


def test_all_answers_to_a_prompt_have_its_deadline() -> None:
    engine = FakeEngine(Scheduler(PagePool(20, 4)))
    engine.add([1] * 5, max_tokens=50, choices=3, deadline=10.0)
    engine.step(1.0)
    assert len(engine.scheduler.running) == 3
    assert len(engine.step(10.0).expired) == 3
    assert [state.reason for state in engine.states] == ["deadline"] * 3
    assert_at_rest(engine, 20)
