"""What a step contains: decodes first, then chunks in the order of arrival, within the budget."""

from __future__ import annotations

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Plan, RequestState, Scheduler

from ..support.processes.child import ROOT
from .fake_engine import FakeEngine, assert_answer, assert_at_rest, continuation


def engine_of(num_pages: int = 100, page_size: int = 4, **options: object) -> FakeEngine:
    return FakeEngine(Scheduler(PagePool(num_pages, page_size), **options))  # type: ignore[arg-type]


def shape(plan: Plan) -> list[tuple[str, int, int, int]]:
    """Request, first position, number of tokens and logits of each row."""
    return [(row.state.id, row.start, len(row.token_ids), row.logits) for row in plan.rows]


def test_prompts_are_cut_at_the_budget_and_decodes_come_first() -> None:
    engine = engine_of(step_tokens=10, max_running=4)
    for length in (3, 12, 9):
        engine.add([length] * length)
    assert shape(engine.step()) == [("0", 0, 3, 1), ("1", 0, 7, 0)]
    assert shape(engine.step()) == [("0", 3, 1, 1), ("1", 7, 5, 1), ("2", 0, 4, 0)]
    assert shape(engine.step()) == [("0", 4, 1, 1), ("1", 12, 1, 1), ("2", 4, 5, 1)]
    assert shape(engine.step()) == [("0", 5, 1, 1), ("1", 13, 1, 1), ("2", 9, 1, 1)]
    engine.run()
    for state in engine.states:
        assert_answer(state)
    assert_at_rest(engine, 100)


def test_the_picture_of_the_documentation_is_what_happens() -> None:
    lengths = {"A": 4, "B": 14, "C": 13}
    scheduler = Scheduler(PagePool(100, 4), step_tokens=12, max_running=3)
    engine = FakeEngine(scheduler, lambda state: drafts_of_step_3(engine, state))
    for length in lengths.values():
        engine.add([length] * length, max_tokens=9)
    lines = []
    for number in range(1, 5):
        cells = dict.fromkeys(lengths, "")
        for row in engine.step().rows:
            name = "ABC"[int(row.state.id)]
            cells[name] = f"{name} " + (
                "p" * len(row.token_ids) if row.is_prefill else "d" + "v" * (row.logits - 1)
            )
        lines.append(f"step {number}   {cells['A']:9}{cells['B']:13}{cells['C']}".rstrip())
    assert engine.states[0].num_output == 6
    text = (ROOT / "docs" / "scheduler.md").read_text()
    assert [line for line in lines if f"\n{line}" not in text] == []


def drafts_of_step_3(engine: FakeEngine, state: RequestState) -> list[int]:
    is_drafted = len(engine.plans) == 2 and state.id == "0"
    return continuation(state.token_ids, 0, 2) if is_drafted else []


@pytest.mark.parametrize("length", [7, 8, 9, 1, 4])
@pytest.mark.parametrize("step_tokens", [2, 3, 4, 8, 64])
def test_lengths_around_whole_pages_and_chunks_of_any_size(length: int, step_tokens: int) -> None:
    engine = engine_of(page_size=4, step_tokens=step_tokens, max_running=2)
    state = engine.add([1] * length, max_tokens=9)
    engine.run()
    assert state.num_output == 9
    assert_answer(state)
    assert len(engine.plans) == -(-length // step_tokens) + 8
    assert_at_rest(engine, 100)


def test_a_row_says_where_its_tokens_are_written() -> None:
    engine = engine_of(page_size=4, step_tokens=6, max_running=1)
    engine.add([5, 6, 7, 8, 9, 10, 11])
    first = engine.step().rows[0]
    assert (list(first.token_ids), list(first.pages), list(first.slots)) == (
        [5, 6, 7, 8, 9, 10],
        [0, 1],
        [0, 1, 2, 3, 4, 5],
    )
    second = engine.step().rows[0]
    assert (second.stop, list(second.slots)) == (7, [6])


def test_slots_have_64_bits() -> None:
    pool = PagePool(3, 2**31 - 1)
    pool.allocate()
    pool.allocate()
    engine = FakeEngine(Scheduler(pool))
    engine.add([1])
    assert list(engine.plan().rows[0].slots) == [2 * (2**31 - 1)]


@pytest.mark.parametrize(("bound", "tokens"), [(None, 9), (0, 0), (4, 4), (9, 9), (100, 9)])
def test_a_bound_for_prompts_beside_answers_is_within_the_budget(bound: int | None, tokens: int) -> None:
    engine = engine_of(step_tokens=10, max_running=4)
    engine.add([3] * 3, max_tokens=9)
    engine.step()
    engine.add([5] * 20)
    plan = engine.scheduler.plan(bound=lambda rows: bound)
    assert [len(row.token_ids) for row in plan.rows] == ([1, tokens] if tokens else [1])


def test_no_more_requests_run_than_may_and_none_overtakes() -> None:
    engine = engine_of(max_running=2)
    for _ in range(4):
        engine.add([1, 2], max_tokens=3)
    assert [state.id for state in engine.step().started] == ["0", "1"]
    engine.step()
    engine.step()
    assert [state.id for state in engine.step().started] == ["2", "3"]


def test_a_short_request_does_not_overtake_one_that_waits_for_pages() -> None:
    engine = engine_of(num_pages=4, page_size=4, max_running=3)
    engine.add([1] * 5, max_tokens=4)
    engine.add([2] * 9, max_tokens=4)
    engine.add([3], max_tokens=2)
    assert [state.id for state in engine.step().started] == ["0"]
    assert [state.id for state in engine.scheduler.waiting] == ["1", "2"]
    engine.run()
    assert [state.id for plan in engine.plans for state in plan.started] == ["0", "1", "2"]


def test_the_watermark_is_left_free_for_the_running_requests() -> None:
    starts = {}
    for watermark in (0, 1, 2):
        engine = engine_of(num_pages=7, page_size=4, watermark=watermark)
        for _ in range(4):
            engine.add([1] * 6, max_tokens=2)
        starts[watermark] = len(engine.step().started)
    assert starts == {0: 3, 1: 2, 2: 2}


@pytest.mark.parametrize(("num_pages", "choices", "started"), [(5, 1, 2), (4, 1, 1), (6, 5, 2), (5, 5, 1)])
def test_a_part_of_a_page_for_each_answer_is_a_whole_one(num_pages: int, choices: int, started: int) -> None:
    """By default a quarter. A prompt that has not split counts for all its answers."""
    engine = engine_of(num_pages=num_pages, page_size=4)
    engine.add([1] * 6, max_tokens=2, choices=choices)
    engine.add([2] * 6, max_tokens=2)
    assert len(engine.step().started) == started


def test_an_empty_plan_needs_no_commit() -> None:
    scheduler = Scheduler(PagePool(1, 1))
    assert scheduler.plan() == scheduler.plan() == Plan()
    assert scheduler.counters.steps == 0
