"""Week 4, day 4: a request gives up its pages, a step fails, and prompts get a part of each step."""

from types import SimpleNamespace

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.errors import ArgumentError
from tiny_llm.scheduler import RequestState, Scheduler, Status
from tiny_llm.scheduler.budget import (
    FEWEST_TOKENS,
    LONGEST_STEP,
    PATIENCE,
    SIZES,
    STEPS_BETWEEN,
    STEPS_BETWEEN_SMALL,
    STEPS_TO_FORGET,
    TRIALS,
    PrefillBudget,
)
from tiny_llm.scheduler.queues import Queues

from .scheduler.fake_engine import FakeEngine, assert_answer, assert_at_rest

# Task 1: preemption, and a step that fails


def names(states):
    return "".join(state.id for state in states)


def queues_with(running, waiting):
    """Requests named by letters, in the order of arrival."""
    queues = Queues()
    for name in running + waiting:
        queues.add(RequestState(name, [1], max_tokens=1))
    for _ in running:
        queues.start_next()
    return queues


def crowded(num_pages, *lengths, max_tokens=12, **options):
    """An engine with prompts of these lengths, in pages of 4 tokens, that start without any reserve."""
    engine = FakeEngine(Scheduler(PagePool(num_pages, 4), watermark=0, **options))
    for number, length in enumerate(lengths):
        engine.add([10 + number] * length, max_tokens)
    return engine


def step_until_preempted(engine):
    for _ in range(50):
        preempted = engine.step().preempted
        if preempted:
            return preempted
    raise AssertionError("no request was preempted in 50 steps")


def test_task_1_the_newest_running_request_is_put_back():
    queues = queues_with("ABC", "DE")
    victim = queues.put_back()
    assert (victim.id, victim.status) == ("C", Status.WAITING)
    assert names(queues.running) == "AB"


def test_task_1_it_waits_before_those_that_are_newer():
    queues = queues_with("ABC", "DE")
    queues.put_back()
    assert names(queues.waiting) == "CDE"
    queues.put_back()
    assert (names(queues.running), names(queues.waiting)) == ("A", "BCDE")
    queues.check()
    queues.start_next()
    assert (names(queues.running), names(queues.waiting)) == ("AB", "CDE")


def test_task_1_the_victim_keeps_its_tokens_and_loses_its_pages():
    """7 tokens each, in 6 pages of 4: after two tokens of an answer each needs a third page."""
    engine = crowded(6, 7, 7, 7)
    (victim,) = step_until_preempted(engine)
    assert victim is engine.states[2]
    assert (victim.num_output, len(victim.pages), victim.computed) == (2, 0, 0)
    engine.scheduler.check()


def test_task_1_a_request_that_lacks_a_page_itself_waits():
    """It is the newest: the older one got its page before it."""
    engine = crowded(4, 7, 8, max_tokens=9)
    assert step_until_preempted(engine) == (engine.states[1],)
    assert [row.state for row in engine.plans[-1].rows] == [engine.states[0]]


def test_task_1_the_answers_are_those_without_preemption():
    """The oldest is never a victim, so all of them end."""
    engine = crowded(5, 8, 8, 8, 8, max_tokens=13)
    engine.run()
    assert engine.scheduler.counters.preemptions > 0 == engine.states[0].preemptions
    for state in engine.states:
        assert state.num_output == 13
        assert_answer(state)
    assert_at_rest(engine, 5)


def test_task_1_a_failed_step_ends_the_requests_of_its_plan():
    """With the reason "error"; their pages go back. The one that waited is computed in the next step."""
    engine = crowded(6, 7, 8, 9)
    plan = engine.plan()
    engine.spoil(plan)
    first, second, third = engine.states
    assert engine.scheduler.discard(plan) == [first, second]
    assert [state.status for state in engine.states] == [Status.FINISHED, Status.FINISHED, Status.WAITING]
    assert first.reason == second.reason == "error"
    engine.scheduler.check()
    assert engine.scheduler.pool.num_free == 6
    engine.run()
    assert third.num_output == 12
    assert_answer(third)


def test_task_1_the_reason_may_be_another():
    engine = crowded(6, 7)
    engine.scheduler.discard(engine.plan(), "stopped")
    assert engine.states[0].reason == "stopped"


def test_task_1_a_request_that_left_during_the_step_is_not_ended_again():
    engine = crowded(6, 7, 8)
    plan = engine.plan()
    first, second = engine.states
    engine.scheduler.cancel(first)
    assert engine.scheduler.discard(plan) == [second]
    assert (first.reason, second.reason) == ("cancelled", "error")
    assert_at_rest(engine, 6)


def test_task_1_all_answers_to_a_prompt_end():
    """Also those that began in the step that failed."""
    engine = FakeEngine(Scheduler(PagePool(8, 4)))
    prompt = engine.add([1, 2, 3], 5, choices=3)
    plan = engine.plan()
    answers = engine.scheduler.fork(prompt)
    assert engine.scheduler.discard(plan) == answers
    assert [state.reason for state in answers] == ["error"] * 3
    assert_at_rest(engine, 8)


def test_task_1_a_plan_is_discarded_once_and_not_committed():
    engine = crowded(6, 7)
    plan = engine.plan()
    engine.scheduler.discard(plan)
    for use in (engine.scheduler.discard, lambda plan: engine.scheduler.commit(plan, {})):
        with pytest.raises(ArgumentError, match="expected the one planned last"):
            use(plan)


# Task 2: how many tokens of a prompt


def learn(budget, answers, prompt, milliseconds):
    """A step with so many rows of answers and so many tokens of a prompt took so long."""
    rows = [SimpleNamespace(token_ids=[0], is_prefill=False)] * answers
    rows += [SimpleNamespace(token_ids=[0] * prompt, is_prefill=True)] * (prompt > 0)
    budget.learn(SimpleNamespace(rows=rows), milliseconds / 1024)  # a power of two: nothing is rounded


def after(*steps, answers=1, alone=1.0):
    """A budget that has seen steps, (rows, milliseconds) each, and then one of the answers alone."""
    budget = PrefillBudget()
    for rows, milliseconds in steps:
        learn(budget, answers, rows - answers, milliseconds)
    learn(budget, answers, 0, alone)
    return budget


def test_task_2_there_is_no_bound_without_answers_or_beyond_the_largest_size():
    assert PrefillBudget().prompt_tokens(0) is None
    assert PrefillBudget().prompt_tokens(SIZES[-1] - FEWEST_TOKENS + 1) is None


def test_task_2_answers_go_alone_until_such_a_step_is_known():
    assert PrefillBudget().prompt_tokens(1) == 0
    assert PrefillBudget().prompt_tokens(SIZES[-1] - FEWEST_TOKENS) == 0


@pytest.mark.parametrize(("answers", "size"), [(1, 4), (2, 8), (5, 8), (6, 12), (300, 384)])
def test_task_2_the_first_trial_is_the_smallest_size_with_three_tokens_of_a_prompt(answers, size):
    """The bound is what is left of the size beside the answers."""
    assert after(answers=answers).prompt_tokens(answers) == size - answers


def test_task_2_after_a_size_that_is_short_enough_the_next_one_is_tried():
    """2.8 times as long as a step alone is still short enough, whatever a step alone takes."""
    assert after((4, LONGEST_STEP)).prompt_tokens(1) == 8 - 1
    assert after((4, 0.5), (8, 1.0)).prompt_tokens(1) == 12 - 1
    assert after((4, 10 * LONGEST_STEP), alone=10.0).prompt_tokens(1) == 8 - 1
    assert after((4, 0.1), *[(8, LONGEST_STEP)] * TRIALS, alone=0.1).prompt_tokens(1) == 4 - 1


def test_task_2_one_slow_step_proves_little():
    """A size that was slow is tried three times; then the size before it is the largest."""
    fast, slow = (4, 1.0), (8, LONGEST_STEP + 0.1)
    for trials in range(TRIALS):
        assert after(fast, *[slow] * trials).prompt_tokens(1) == 8 - 1
    assert after(fast, *[slow] * TRIALS).prompt_tokens(1) == 4 - 1


def test_task_2_the_fastest_of_the_latest_four_steps_counts():
    fast, disturbed = (8, 1.0), (8, 9.0)
    assert after((4, 1.0), disturbed, disturbed, fast).prompt_tokens(1) == 12 - 1
    assert after((4, 1.0), fast, *[disturbed] * 3).prompt_tokens(1) == 12 - 1
    assert after((4, 1.0), fast, *[disturbed] * 4).prompt_tokens(1) == 4 - 1


def test_task_2_a_prompt_comes_in_however_slow_the_smallest_size_is():
    assert after(*[(4, 100.0)] * 4).prompt_tokens(1) == FEWEST_TOKENS


def test_task_2_prompts_get_more_once_they_have_been_coming_in_for_long():
    for milliseconds, tokens in ((1024 * PATIENCE - 1, 4 - 1), (1024 * PATIENCE, 128 - 1)):
        budget = after(*[(4, 9.0)] * TRIALS)
        learn(budget, 1, budget.prompt_tokens(1), milliseconds)
        assert budget.prompt_tokens(1) == tokens


def test_task_2_there_is_no_bound_where_all_sizes_are_short_enough():
    assert after(*[(size, 1.0) for size in SIZES]).prompt_tokens(1) is None


@pytest.mark.parametrize(("largest", "steps"), [(4, STEPS_BETWEEN_SMALL), (8, STEPS_BETWEEN)])
def test_task_2_the_answers_go_alone_from_time_to_time(largest, steps):
    """After 16 steps with prompts, or after 4 at the smallest size."""
    next_size = SIZES[SIZES.index(largest) + 1]
    budget = after((4, 1.0), (8, 1.0 if largest == 8 else 9.0), *[(next_size, 9.0)] * TRIALS)
    for _ in range(steps):
        assert budget.prompt_tokens(1) == largest - 1
        learn(budget, 1, largest - 1, 1.0)
    assert budget.prompt_tokens(1) == 0
    learn(budget, 1, 0, 1.0)
    assert budget.prompt_tokens(1) == largest - 1


def test_task_2_a_size_that_was_slow_is_tried_again_after_many_steps():
    slow = [(8, 9.0)] * TRIALS
    assert after(*slow, *[(4, 1.0)] * (STEPS_TO_FORGET - 2)).prompt_tokens(1) == 4 - 1
    assert after(*slow, *[(4, 1.0)] * (STEPS_TO_FORGET + 1)).prompt_tokens(1) == 8 - 1


def test_task_2_a_step_is_compared_with_one_of_as_many_answers_alone():
    """Of fewer, if none had so many; of more, if there are no fewer."""
    budget = after((8, 5.0))
    learn(budget, 2, 0, 1.0)
    learn(budget, 4, 0, 2.0)
    assert budget.prompt_tokens(4) == 12 - 4  # 5 <= 2.8 * 2
    assert budget.prompt_tokens(5) == 12 - 5  # by the time of 4
    assert budget.prompt_tokens(3) == 8 - 3  # by the time of 2: 5 > 2.8, and one slow step proves little
    one = after((8, 5.0), answers=4, alone=2.0)
    assert one.prompt_tokens(1) == 4 - 1  # by the time of 4


@pytest.mark.parametrize(("cost", "size"), [(0.2, 8), (0.01, 128), (3.0, 4)])
def test_task_2_a_prompt_grows_a_step_up_to_the_limit(cost, size):
    """On a machine where each row more makes a step longer by `cost`, measured from scratch."""
    budget, sizes = PrefillBudget(), []
    for _ in range(120):
        tokens = budget.prompt_tokens(1)
        learn(budget, 1, tokens, 1.0 + cost * tokens)
        sizes += [1 + tokens] if tokens else []
    assert sizes[-4:] == [size] * 4
