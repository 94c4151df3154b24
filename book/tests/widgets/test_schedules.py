"""V1 beside V2: the model against runs of the schedules in Python, and its controls."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from benches.cases.schedules import Case
from tiny_llm.course import schedules

pytestmark = pytest.mark.browser

KINDS = ("Q", "K", "V", "state", "O")
CALLS = [
    (queries, keys, causal)
    for queries, keys in ((1, 1), (1, 8), (8, 1), (4, 4), (3, 5), (5, 3), (8, 8))
    for causal in (True, False)
]


def events(monkeypatch, order: str, queries: int, keys: int, causal: bool) -> list[tuple[Any, ...]]:
    """What the schedule does, in its order: start a state, add a tile to it, divide it."""
    seen: list[tuple[Any, ...]] = []
    no_keys, divide = schedules.no_keys, schedules.divide

    def start(query):
        seen.append(("start", sum(event[0] == "start" for event in seen)))
        return no_keys(query)

    def finish(state):
        seen.append(("divide", sum(event[0] == "divide" for event in seen)))
        return divide(state)

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "no_keys", start)
        patch.setattr(schedules, "divide", finish)
        run = {"V1": schedules.flash_attention_v1, "V2": schedules.flash_attention_v2}[order]
        run(
            mx.ones((queries, 1)),
            mx.ones((keys, 1)),
            mx.ones((keys, 1)),
            causal=causal,
            tile=(1, 1),
            on_visit=lambda visit: seen.append(("visit", visit.query_tile, visit.key_tile)),
        )
    return seen


def transfers(order: str, seen: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """What has been read and written after each visit, and at the end, if caches keep nothing.

    V2 holds its state from the start to the division, V1 its keys as long as they stay the same.
    """
    visits = [event[1:] for event in seen if event[0] == "visit"]
    moved = [Counter() for _ in (*visits, None)]
    number, held, started = 0, None, set()
    for event, i, *key in seen:
        if event == "visit":
            (j,) = key
            step, number = moved[number], number + 1
            if order == "V1":
                step.update(["read Q", "read state", "written state"])
                step.update(["read K", "read V"] if j != held else [])
                held = j
            else:
                step.update(["read K", "read V"] + (["read Q"] if i not in started else []))
                started.add(i)
        elif event == "start":
            moved[number].update(["written state"] if order == "V1" else [])
        elif order == "V1":
            moved[number].update(["read state", "written O"])
        else:  # with the visit before it; queries without a key come before the first one
            moved[max(number - 1, 0)].update(["written O"])
    result, so_far = [], Counter()
    for visit, step in zip((*visits, None), moved, strict=True):
        so_far.update(step)
        counts = {way: {kind: so_far[f"{way} {kind}"] for kind in KINDS} for way in ("read", "written")}
        result.append({"visit": visit, **counts})
    return result


def record(monkeypatch, queries: int, keys: int, causal: bool) -> dict[str, Any]:
    case = Case("widget", 64 * queries, 64 * keys, heads=1, kv_heads=1, D=64)
    orders, kv_bytes, state_bytes = {}, {}, {}
    for order in ("V1", "V2"):
        seen = events(monkeypatch, order, queries, keys, causal)
        orders[order] = transfers(order, seen)
        visited = sum(event[0] == "visit" for event in seen)
        plan = SimpleNamespace(schedule=order.lower(), tiles_visited=visited, tile=(64, 64))
        kv_bytes[order], state_bytes[order] = case.kv_bytes(plan), case.intermediate_bytes(plan)
    call = {"queryTiles": queries, "keyTiles": keys, "causal": causal}
    return {"call": call, "orders": orders, "kvBytes": kv_bytes, "stateBytes": state_bytes}


def test_the_oracle_counts_a_small_case_by_hand(monkeypatch):
    found = record(monkeypatch, 4, 4, True)
    assert len(found["orders"]["V1"]) == len(found["orders"]["V2"]) == 10 + 1
    assert [step["visit"] for step in found["orders"]["V1"][:5]] == [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1)]
    assert [step["visit"] for step in found["orders"]["V2"][:5]] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    first, second = (found["orders"][order][-1] for order in ("V1", "V2"))
    assert first["read"] == {"Q": 10, "K": 4, "V": 4, "state": 14, "O": 0}
    assert first["written"] == {"Q": 0, "K": 0, "V": 0, "state": 14, "O": 4}
    assert second["read"] == {"Q": 4, "K": 10, "V": 10, "state": 0, "O": 0}
    assert second["written"] == {"Q": 0, "K": 0, "V": 0, "state": 0, "O": 4}


def test_the_model_follows_the_schedules(monkeypatch, run_model):
    run_model("schedules", [record(monkeypatch, *call) for call in CALLS])


@pytest.fixture
def widget(open_widget):
    return open_widget("week2/day4", "schedules")


def moved(widget) -> dict[str, list[int]]:
    rows = [row.locator("th, td").all_inner_texts() for row in widget.locator("tr").all()[1:]]
    return {name.split(":")[0]: [int(text) for text in numbers] for name, *numbers in rows}


def test_the_widget_shows_the_counts_of_all_steps(monkeypatch, widget):
    wanted = record(monkeypatch, 4, 4, True)["orders"]
    widget.get_by_role("button", name="Next").focus()
    for t in range(11):
        widget.page.keyboard.press("ArrowRight" if t % 2 else "Enter")
        assert moved(widget) == {
            kind: [wanted[order][t][way][kind] for order in ("V1", "V2") for way in ("read", "written")]
            for kind in KINDS
        }
    assert widget.locator(".counter").inner_text() == "step 11 of 11"
    assert widget.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
    assert widget.locator(".amount").all_inner_texts() == ["834 KB", "459 KB"]
    for _ in range(11):
        widget.page.keyboard.press("ArrowLeft")
    assert all(count == 0 for counts in moved(widget).values() for count in counts)


def test_the_slider_and_other_sizes_draw_what_they_say(widget):
    widget.get_by_label("tiles of queries").fill("0")
    widget.get_by_label("tiles of keys").fill("7")
    widget.get_by_label("step", exact=True).fill("9")
    assert moved(widget) == {
        "Q": [8, 0, 1, 0],
        "K": [8, 0, 8, 0],
        "V": [8, 0, 8, 0],
        "state": [9, 9, 0, 0],
        "O": [0, 1, 0, 1],
    }
    widget.get_by_label("tiles of queries").fill("7")
    widget.get_by_label("step", exact=True).fill("36")
    assert widget.locator(".score.computed").count() == 2 * 36
    assert widget.locator(".score.skipped").count() == 2 * 28
    widget.get_by_label("causal").uncheck()
    assert widget.locator(".score.skipped").count() == 0
    assert widget.locator(".score.computed").count() == 0


def test_it_plays_when_it_is_told_to_and_not_before(widget):
    page, counter = widget.page, widget.locator(".counter")
    page.clock.install(time=0)
    page.clock.pause_at(3600)  # seconds; from here on time stands still but for run_for
    page.clock.run_for(60_000)
    assert counter.inner_text() == "step 0 of 11"
    widget.get_by_role("button", name="Play").click()
    page.clock.run_for(3 * 700)
    assert counter.inner_text() == "step 3 of 11"
    widget.get_by_role("button", name="Pause").click()
    page.clock.run_for(60_000)
    assert counter.inner_text() == "step 3 of 11"
    widget.get_by_role("button", name="Play").click()
    page.clock.run_for(60_000)
    assert counter.inner_text() == "step 11 of 11"
    assert widget.get_by_role("button", name="Play").is_visible()


def test_with_reduced_motion_it_jumps_to_the_end(widget):
    widget.page.emulate_media(reduced_motion="reduce")
    widget.get_by_role("button", name="Next").click()
    widget.get_by_role("button", name="To the end").click()
    assert widget.locator(".counter").inner_text() == "step 11 of 11"
