"""The time line of batches: its record against the engine, its model against the scheduler, its controls."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState, Scheduler
from tools.record_batches import BUDGETS, PLACES, SIZES, TARGET, as_text, record

pytestmark = pytest.mark.browser

TRACE = json.loads(TARGET.read_text())
REQUESTS = TRACE["requests"]
COST = {"base": 1.5, "perToken": 0.25}
Rows = list[list[int]]
Steps = list[dict[str, Any]]
# Places, budget, and the tokens of prompt and answer of each request.
LOADS = [
    (PLACES, 64, SIZES),
    (4, 10**6, SIZES),
    (2, 8, ((9, 3), (30, 5), (2, 9), (17, 1), (8, 2))),
    (1, 16, ((40, 2), (3, 3))),
    (8, 8, SIZES),
]


def scheduled(places: int, budget: int, sizes: Any) -> list[Rows]:
    """The rows of each step, by the scheduler of tiny_llm."""
    scheduler = Scheduler(PagePool(1000, 16), step_tokens=budget, max_running=places, prefix_cache=False)
    states = [RequestState(str(n), [n] * prompt, output) for n, (prompt, output) in enumerate(sizes)]
    for state in states:
        scheduler.add(state)
    steps = []
    while scheduler.running or scheduler.waiting:
        plan = scheduler.plan()
        steps.append([[int(row.state.id), len(row.token_ids), int(not row.is_prefill)] for row in plan.rows])
        tokens = {row.state: [0] for row in plan.rows if row.logits}
        scheduler.commit(plan, tokens)
        for state in tokens:
            if state.num_output == state.max_tokens:
                scheduler.finish(state)
    return steps


def static(places: int, sizes: Any) -> Steps:
    """Each batch is a rectangle of places and steps; what the requests do not fill is padding."""
    steps = []
    for first in range(0, len(sizes), places):
        batch = dict(enumerate(sizes[first : first + places], start=first))
        widest, deepest = (max(size[axis] for size in batch.values()) for axis in (0, 1))
        for token in range(deepest):
            alive = [number for number, (_, output) in batch.items() if output > token]
            rows = [[number, 1 if token else batch[number][0], int(token > 0)] for number in alive]
            area = len(batch) * (1 if token else widest)
            useful = sum(row[1] for row in rows)
            steps.append(
                {"rows": rows, "padding": area - useful, "ms": COST["base"] + area * COST["perToken"]}
            )
    return steps


def token_times(sizes: Any, steps: Steps) -> list[list[float]]:
    """When each token of each answer comes: in steps that decode, and in the one that ends the prompt."""
    ends = np.cumsum([step["ms"] for step in steps])
    times = []
    for number, (prompt, _) in enumerate(sizes):
        mine = [
            (end, row)
            for end, step in zip(ends, steps, strict=True)
            for row in step["rows"]
            if row[0] == number
        ]
        seen = np.cumsum([0 if row[2] else row[1] for _, row in mine])
        times.append([float(end) for (end, _), tokens in zip(mine, seen, strict=True) if tokens == prompt])
    return times


def figures(sizes: Any, steps: Steps) -> dict[str, Any]:
    times = token_times(sizes, steps)
    firsts = [each[0] for each in times]
    duration = sum(step["ms"] for step in steps)
    return {
        "duration": duration,
        "output": [len(each) for each in times],
        "rate": 1000 * sum(len(each) for each in times) / duration,
        "meanFirst": float(np.mean(firsts)),
        "lastFirst": max(firsts),
        "largestGap": max((float(np.diff(each).max()) for each in times if len(each) > 1), default=0.0),
        "padding": sum(step.get("padding", 0) for step in steps),
    }


def timed(steps: list[Rows]) -> Steps:
    return [
        {"rows": rows, "padding": 0, "ms": COST["base"] + COST["perToken"] * sum(row[1] for row in rows)}
        for rows in steps
    ]


def recorded_steps() -> Steps:
    return [step for run in TRACE["runs"].values() for step in run["steps"]]


def line_of(steps: Steps) -> tuple[float, float]:
    """Base and time of a row, by least squares."""
    rows = [sum(row[1] for row in step["rows"]) for step in steps]
    per_token, base = np.polyfit(rows, [step["ms"] for step in steps], 1)
    return float(base), float(per_token)


def test_the_model_schedules_as_the_engine_and_counts_as_numpy(run_model):
    loads = []
    for places, budget, sizes in LOADS:
        runs = {"budget": timed(scheduled(places, budget, sizes)), "static": static(places, sizes)}
        loads.append(
            {
                "places": places,
                "budget": budget,
                "requests": [{"prompt": prompt, "output": output} for prompt, output in sizes],
                "runs": {
                    name: {"steps": steps, "figures": figures(sizes, steps)} for name, steps in runs.items()
                },
            }
        )
    base, per_token = line_of(recorded_steps())
    record_of_line = {"base": base, "perToken": per_token}
    run_model(
        "batch_timeline",
        {"cost": COST, "loads": loads, "steps": recorded_steps(), "fit": record_of_line},
    )


@pytest.mark.parametrize("name", TRACE["runs"])
def test_a_recorded_run_conserves_tokens_keeps_its_budget_and_decodes_first(name):
    run = TRACE["runs"][name]
    prompts, answers = [0] * len(REQUESTS), [0] * len(REQUESTS)
    for step in run["steps"]:
        numbers, tokens, decodes = zip(*step["rows"], strict=True)
        assert step["ms"] > 0
        assert len(set(numbers)) == len(numbers) <= TRACE["places"]
        assert sum(tokens) <= run["budget"]
        assert list(decodes) == sorted(decodes, reverse=True)
        alive = {n for n, each in enumerate(REQUESTS) if 0 < answers[n] < each["output"]}
        assert {n for n, decode in zip(numbers, decodes, strict=True) if decode} == alive  # none stands still
        for number, count, decode in step["rows"]:
            prompts[number] += 0 if decode else count
            answers[number] += prompts[number] == REQUESTS[number]["prompt"]
    assert prompts == [each["prompt"] for each in REQUESTS]
    assert answers == [each["output"] for each in REQUESTS]


@pytest.mark.parametrize("name", BUDGETS)
def test_the_engine_still_takes_the_recorded_steps(name):
    assert TRACE["runs"][name]["budget"] == BUDGETS[name]
    assert [(each["prompt"], each["output"]) for each in REQUESTS] == list(SIZES)
    steps = record(BUDGETS[name], repeats=1)
    assert [step["rows"] for step in steps] == [step["rows"] for step in TRACE["runs"][name]["steps"]]


def test_the_record_is_written_as_the_tool_writes_it():
    assert as_text(TRACE) == TARGET.read_text()


def shown(value: float) -> str:
    return np.format_float_positional(value, precision=3, fractional=False, trim="-")


def expected_table() -> list[list[str]]:
    """The figures of the three policies, with the line through the recorded steps for static batches."""
    base, per_token = line_of(recorded_steps())
    made = static(PLACES, SIZES)
    for step in made:
        area = sum(row[1] for row in step["rows"]) + step["padding"]
        step["ms"] = base + per_token * area
    runs = [made, *(TRACE["runs"][name]["steps"] for name in BUDGETS)]
    found = [figures(SIZES, run) for run in runs]
    return [
        [
            f"{shown(each['duration'])} ms",
            f"{shown(each['rate'])} /s",
            f"{shown(each['meanFirst'])} ms",
            f"{shown(each['largestGap'])} ms",
        ]
        for each in found
    ]


def cells(place) -> list[list[str]]:
    return [line.locator("td").all_inner_texts() for line in place.locator("tbody tr").all()]


def test_the_table_without_scripts_has_the_figures(open_page):
    page = open_page("week4/day2", scripts=False)
    found = cells(page.locator("figure[data-widget=batch_timeline]"))
    assert [line[1:] for line in found] == expected_table()


@pytest.fixture
def widget(open_widget):
    return open_widget("week4/day2", "batch_timeline")


def test_the_widget_shows_the_record(widget):
    assert cells(widget.locator(".results")) == expected_table()
    titles = widget.locator(".title").all_inner_texts()
    assert [title.rsplit("(")[-1] for title in titles] == ["simulated)", "recorded)", "recorded)"]
    assert TRACE["machine"] in widget.locator(".sentence").inner_text()
    widget.get_by_label("time").focus()
    widget.page.keyboard.press("Home")
    moments = widget.locator(".moment").all_inner_texts()
    assert "step 1 of" in moments[1]
    assert "24 of A, 40 of B" in moments[2]
    widget.page.keyboard.press("End")
    assert "all have ended" in widget.locator(".moment").last.inner_text()


def test_a_press_or_a_drag_on_a_time_line_sets_the_time(widget):
    picture = widget.locator(".panel svg").first
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    mouse = widget.page.mouse
    mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 10)
    mouse.down()
    assert widget.get_by_label("time").input_value() == "500"
    mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 10)
    mouse.up()
    mouse.move(box["x"], box["y"] + 10)
    assert widget.get_by_label("time").input_value() == "750"
    assert "of E" in widget.locator(".moment").first.inner_text()


def test_a_longer_prompt_and_a_smaller_budget_are_simulated(widget):
    widget.get_by_label("simulate all three").check()
    assert all("(simulated)" in title for title in widget.locator(".title").all_inner_texts())
    before = cells(widget.locator(".results"))
    prompt = widget.get_by_label("tokens of E's prompt")
    prompt.focus()
    widget.page.keyboard.press("End")
    after = cells(widget.locator(".results"))

    def gap(table, row):
        return float(table[row][3].split()[0])

    assert gap(after, 1) > 2 * gap(before, 1)  # whole prompts
    assert gap(after, 2) == gap(before, 2)  # a budget
    for label in ("budget of a step", "places"):
        for key in ("Home", "End"):
            widget.get_by_label(label).focus()
            widget.page.keyboard.press(key)
            assert len(cells(widget.locator(".results"))) == 3
    assert widget.evaluate("box => box.scrollWidth <= box.clientWidth")
