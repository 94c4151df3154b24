"""Prompts beside running answers: as many tokens as keep a step short, by steps whose time is given."""

import random
import time

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.engine import Engine
from tiny_llm.scheduler import RequestState, Scheduler
from tiny_llm.scheduler.budget import (
    FEWEST_TOKENS,
    LONGEST_STEP,
    PATIENCE,
    SIZES,
    STEPS_TO_FORGET,
    TRIALS,
    PrefillBudget,
)

from ..support.engine_requests import PROMPTS, alone, ids_of, read, request_of

ALONE = 1.0  # the time of a step of one answer
UNIT = 1e-4  # of such times, in seconds: no prompt waits for long


def scheduler_with(answers, prompt=20000):
    """Answers that decode, and a prompt that waits."""
    scheduler = Scheduler(PagePool(4000, 8), step_tokens=512, max_running=16)
    for number in range(answers):
        scheduler.add(RequestState(str(number), [number + 1], 3000))
    commit(scheduler, scheduler.plan())
    if prompt:
        scheduler.add(RequestState("prompt", [9] * prompt, 1))
    return scheduler


def commit(scheduler, plan):
    scheduler.commit(plan, {row.state: [1] for row in plan.rows if row.logits})


def paced(scheduler, budget, seconds, steps):
    """The rows of the next steps, which take `seconds(rows)`."""
    found = []
    for _ in range(steps):
        plan = scheduler.plan(bound=budget.prompt_tokens)
        found.append(sum(len(row.token_ids) for row in plan.rows))
        commit(scheduler, plan)
        budget.learn(plan, UNIT * seconds(found[-1]))
    return found


def with_prompts(rows, answers=1):
    """Those of the steps that had more than their answers."""
    return [each for each in rows if each > answers]


def by_rows(cost, alone=ALONE):
    """Seconds of a step in which each row beyond the first costs a share of the first."""
    return lambda rows: alone + cost * (rows - 1)


@pytest.mark.parametrize(("cost", "size"), [(0.2, 8), (0.01, 128), (3.0, 4)])
def test_a_prompt_grows_a_step_up_to_the_limit(cost, size):
    budget = PrefillBudget()
    paced(scheduler_with(1, prompt=0), budget, by_rows(cost), 5)
    rows = with_prompts(paced(scheduler_with(1), budget, by_rows(cost), 120))
    assert rows[-4:] == [size] * 4
    assert rows[0] == SIZES[0] == 1 + FEWEST_TOKENS
    next_size = SIZES[SIZES.index(size) + 1] if cost < 1 else size
    assert max(rows) == next_size  # tried, and found too long
    if cost < 1:
        assert rows.count(next_size) == TRIALS
        assert by_rows(cost)(size) <= LONGEST_STEP * ALONE < by_rows(cost)(next_size)


def test_there_is_no_bound_where_rows_are_free_or_no_answer_runs():
    budget = PrefillBudget()
    paced(scheduler_with(2, prompt=0), budget, by_rows(0.0), 3)
    assert budget.prompt_tokens(3) == 8 - 3  # by the time of two, which is no longer
    assert budget.prompt_tokens(1) == 4 - 1  # by that of two, too: better than no bound
    assert budget.prompt_tokens(0) is None
    assert budget.prompt_tokens(SIZES[-1]) is None  # more rows than any size that is remembered
    rows = paced(scheduler_with(2), budget, by_rows(0.0), 40)
    assert max(rows) == 512


def test_a_prompt_that_waits_from_the_first_step_on_is_bounded():
    rows = paced(scheduler_with(1), PrefillBudget(), by_rows(0.2), 20)
    assert rows[:2] == [1, 4]  # the answer alone first, to know what its step takes
    assert with_prompts(rows)[-1] == 8


def test_more_answers_get_larger_steps():
    budget = PrefillBudget()
    for answers in (1, 8):
        paced(scheduler_with(answers, prompt=0), budget, by_rows(0.2), 3)
    one = with_prompts(paced(scheduler_with(1), budget, by_rows(0.2), 60))[-1]
    eight = with_prompts(paced(scheduler_with(8), budget, by_rows(0.2), 60), 8)[-1]
    assert (one, eight) == (8, 24)


def test_a_number_of_answers_that_was_never_measured_takes_the_time_of_fewer():
    """Or, if there are none, of more."""
    budget = PrefillBudget()
    for answers, seconds in ((2, 1.0), (8, 4.0)):
        paced(scheduler_with(answers, prompt=0), budget, by_rows(0.0, seconds), 3)
    scheduler = scheduler_with(1)
    for size in SIZES:
        for _ in range(TRIALS):
            plan = scheduler.plan(bound=lambda rows, size=size: size - rows)
            commit(scheduler, plan)
            budget.learn(plan, UNIT * 0.5 * size)
        budget.learn(
            scheduler_with(2, prompt=0).plan(), UNIT
        )  # or these times would be too old to compare with
        budget.learn(scheduler_with(8, prompt=0).plan(), UNIT * 4.0)
    assert LONGEST_STEP * 1.0 < 0.5 * 8 < 0.5 * 16 < LONGEST_STEP * 4.0 < 0.5 * 24
    assert budget.prompt_tokens(9) == 16 - 9  # by the time of 8
    assert budget.prompt_tokens(8) == 16 - 8
    assert (
        budget.prompt_tokens(5) == 8 - 5
    )  # by that of 2, for which 8 rows are too long; a prompt must go on
    assert budget.prompt_tokens(1) == 4 - 1  # by that of 2


def test_a_prompt_beside_drafts_grows_too():
    """The bound counts drafts, so that the steps have sizes that are remembered."""
    scheduler, budget = scheduler_with(1), PrefillBudget()
    rows = []
    for _ in range(40):
        scheduler.running[0].drafts = [1] * 7
        rows += paced(scheduler, budget, by_rows(0.2), 1)
    assert rows[0] == 8
    assert with_prompts(rows, 8)[-3:] == [24] * 3
    assert by_rows(0.2)(24) <= LONGEST_STEP * by_rows(0.2)(8) < by_rows(0.2)(32)


def test_a_step_that_failed_has_no_time(llm, engine, monkeypatch):
    learned, begin, logits = [], time.monotonic(), engine._steps.runner.logits

    def fail(plan):
        raise MemoryError("no room")

    monkeypatch.setattr(engine._budget, "learn", lambda plan, seconds: learned.append(seconds))
    with monkeypatch.context() as patch:
        patch.setattr(engine._steps.runner, "logits", fail)
        (event,) = engine.submit(request_of(llm, PROMPTS[0]))
    assert event.finish_reason == "error"
    assert engine._steps.runner.logits == logits
    read(engine.submit(request_of(llm, PROMPTS[0], 4)))
    engine.close()
    assert len(learned) == engine.statistics().steps > 0
    assert min(learned) > 0
    assert sum(learned) < time.monotonic() - begin


def seconds_of_prompts(prompts, tokens, seconds, budget):
    """How long prompts beside an answer take, which come at once, and the rows of each step with its end."""
    scheduler, now, steps = scheduler_with(1, prompt=0), 0.0, []
    for number in range(prompts):
        scheduler.add(RequestState(f"prompt {number}", [9 + number] * tokens, 1))
    while len(scheduler.running) + len(scheduler.waiting) > 1:
        plan = scheduler.plan(bound=budget.prompt_tokens if budget else None)
        rows = sum(len(row.token_ids) for row in plan.rows)
        now += seconds(rows)
        steps.append((now, rows))
        commit(scheduler, plan)
        for row in plan.rows:
            if row.logits and row.state.max_tokens == 1:
                scheduler.finish(row.state, "length")
        if budget:
            budget.learn(plan, seconds(rows))
    return now, steps


@pytest.mark.parametrize("prompts", [1, 5])
@pytest.mark.parametrize("cost", [0.2, 0.65, 3.0])
def test_a_prompt_waits_a_few_seconds_longer_than_without_a_bound_and_no_more(cost, prompts):
    """A clock of its own: an answer takes 50 ms for a token, and each row beside it a share of that."""
    seconds, budget = by_rows(0.05 * cost, 0.05), PrefillBudget()
    now, steps = seconds_of_prompts(prompts, 2000, seconds, budget)
    unbounded, _ = seconds_of_prompts(prompts, 2000, seconds, None)
    assert unbounded < now < PATIENCE + 1.1 * unbounded
    early = [rows for end, rows in steps if end < PATIENCE]
    assert len(early) > 5
    assert max(early) <= 12
    assert max(rows for _, rows in steps) == 128  # not more, as even this is too long for the answer
    budget.learn(scheduler_with(1, prompt=0).plan(), 0.05)  # no prompt waits any more
    _, steps = seconds_of_prompts(1, 20, seconds, budget)
    assert max(rows for _, rows in steps) <= 12


def test_a_prompt_is_bounded_for_the_seconds_of_its_patience():
    budget = PrefillBudget()
    paced(scheduler_with(1, prompt=0), budget, by_rows(0.2), 3)
    plan = scheduler_with(1).plan(bound=lambda rows: FEWEST_TOKENS)
    for part in (0.75, 0.25):
        assert budget.prompt_tokens(1) == FEWEST_TOKENS
        budget.learn(plan, part * PATIENCE)
    assert budget.prompt_tokens(1) == 128 - 1


def test_steps_after_the_prompts_have_left_are_no_wait():
    """As when a prompt is cancelled in a step that it was left out of."""
    budget, scheduler = PrefillBudget(), scheduler_with(1, prompt=0)
    assert budget.prompt_tokens(1) == 0
    for _ in range(3):
        plan = scheduler.plan()
        commit(scheduler, plan)
        budget.learn(plan, PATIENCE)
    assert budget.prompt_tokens(1) == FEWEST_TOKENS


def test_steps_of_prompts_alone_say_nothing_about_those_beside_answers():
    """They may be much faster, no answer waits for one that is compared with, and no prompt for an answer."""
    budget = PrefillBudget()
    paced(scheduler_with(1, prompt=0), budget, by_rows(0.2), 3)
    for size, seconds in [*((size, 1e-6) for size in SIZES * TRIALS), (9, 2 * PATIENCE)]:
        scheduler = Scheduler(PagePool(100, 8))
        scheduler.add(RequestState("prompt", [9] * size, 1))
        budget.learn(scheduler.plan(), seconds)
    assert budget.prompt_tokens(1) == FEWEST_TOKENS


def test_a_size_that_was_slow_once_is_tried_again():
    budget = PrefillBudget()
    paced(scheduler_with(1, prompt=0), budget, by_rows(0.0), 3)
    disturbed = with_prompts(paced(scheduler_with(1), budget, lambda rows: 100.0 if rows > 4 else 1.0, 15))
    assert disturbed[-1] == 4
    later = with_prompts(paced(scheduler_with(1), budget, by_rows(0.0), 5 * STEPS_TO_FORGET // 4 + 25))
    assert max(later) == 512


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_machine_that_becomes_slower_or_faster_changes_nothing(factor):
    """Others begin or cease to use it: a prompt comes in as large parts as before, after some steps."""
    budget = PrefillBudget()
    paced(scheduler_with(1, prompt=0), budget, by_rows(0.2), 3)
    assert with_prompts(paced(scheduler_with(1), budget, by_rows(0.2), 25))[-1] == 8
    rows = paced(scheduler_with(1), budget, lambda rows: factor * by_rows(0.2)(rows), 80)
    assert with_prompts(rows)[-20:] == [8] * 20
    assert rows.count(1) >= 4  # without the prompt, to measure what the others are compared with


def test_a_machine_that_becomes_faster_is_measured_again():
    """What was too long beside the steps of the slow one may be short enough now."""
    budget = PrefillBudget()
    for prompt in (0, 20000):
        rows = paced(scheduler_with(1, prompt), budget, by_rows(5.0, 10.0), 25)
    assert with_prompts(rows)[-1] == 4
    assert with_prompts(paced(scheduler_with(1), budget, by_rows(0.2), 40))[-1] == 8


def test_disturbed_steps_do_not_stop_a_prompt():
    """Every tenth step takes four times as long, trials as well."""
    budget, numbers = PrefillBudget(), random.Random(0)
    paced(scheduler_with(1, prompt=0), budget, by_rows(0.2), 3)
    rows = with_prompts(
        paced(
            scheduler_with(1),
            budget,
            lambda rows: by_rows(0.2)(rows) * (4 if numbers.random() < 0.1 else 1),
            400,
        )
    )
    assert rows.count(8) > 0.9 * len(rows)


def test_a_prompt_beside_a_running_answer_comes_in_parts_and_gets_the_same_answer(llm):
    prompt = "The quick brown fox jumps over the lazy dog. " * 20
    with Engine(llm, max_context=1024, page_size=8) as engine:
        running = engine.submit(request_of(llm, PROMPTS[0], 900, sampling={"ignore_eos": True}, salt="other"))
        for _ in range(3):
            next(running)
        assert read(engine.submit(request_of(llm, prompt))) == alone(llm, prompt)
        running.cancel()
        steps = engine.statistics().step_tokens
        assert SIZES[0] in steps
        assert max(steps) < len(ids_of(llm, prompt))
