"""The stepper of the online softmax: its model against a plain softmax in float64, and its controls."""

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.browser

SIZE, KEYS, TILE = 8, 32, 8
# The golden run of the stepper: m, l, alpha, O'[0] and O'[3] after each tile.
GOLDEN = [
    (0.375, 5.651413550821609, 0, -0.117840916, 0.256456315),
    (0.9921875, 6.6261542212474875, 0.5394595359337269, -0.796665792, 0.978827979),
    (0.9921875, 9.764654720342117, 1, -0.607354039, 1.383042103),
    (1.3203125, 9.911438204289409, 0.7202729799554398, -0.890709109, 1.964400934),
]


def oracle() -> dict[str, Any]:
    """The states after 0 to 4 tiles, each from the plain softmax over the keys so far."""
    c, j = np.arange(SIZE), np.arange(KEYS)[:, None]
    query = ((3 * c + 1) % 8 - 4) / 8
    keys = ((4 * j + 2 * c + 3 * j * c) % 31 - 15) / 16
    values = ((5 * j + 3 * c) % 13 - 6) / 8
    scores = keys @ query
    states, before = [], -np.inf
    for end in range(0, KEYS + 1, TILE):
        m = scores[:end].max(initial=-np.inf)
        weights = np.exp(scores[:end] - m)
        state = {"m": m, "l": weights.sum(), "acc": (weights @ values[:end]).tolist()}
        states.append(state | {"alpha": np.exp(before - m) if end else None})
        before = m
    p = np.exp(scores - scores.max())
    output = (p / p.sum()) @ values
    return {"states": states, "output": output.tolist(), "lse": scores.max() + np.log(p.sum())}


def test_the_oracle_has_the_golden_run():
    for state, (m, l, alpha, first, fourth) in zip(  # noqa: E741
        oracle()["states"][1:], GOLDEN, strict=True
    ):
        assert (state["m"], state["alpha"]) == (m, pytest.approx(alpha, abs=1e-15))
        assert state["l"] == pytest.approx(l, rel=1e-14)
        assert (state["acc"][0], state["acc"][3]) == (
            pytest.approx(first, abs=1e-9),
            pytest.approx(fourth, abs=1e-9),
        )


def test_the_model_follows_the_oracle(run_model):
    record = oracle()
    record["states"][0]["m"] = None  # JSON has no infinity; the test in Node knows
    run_model("online_softmax", record)


@pytest.fixture
def stepper(open_widget):
    return open_widget("week2/day4", "online_softmax")


def rows(stepper):
    return dict(row.locator("th, td").all_inner_texts() for row in stepper.locator("tr").all())


def test_the_stepper_shows_the_golden_numbers(stepper):
    shown = []
    for _ in range(4):
        stepper.get_by_role("button", name="Next").click()
        state = rows(stepper)
        shown.append((state["m, the largest score"], state["l, the sum of exp(s − m)"]))
    assert shown == [
        ("0.375", "5.65141"),
        ("0.992188", "6.62615"),
        ("0.992188", "9.76465"),
        ("1.32031", "9.91144"),
    ]
    stepper.get_by_role("button", name="Next").click()
    assert rows(stepper)["O = O′ / l"].startswith("−0.08987  −0.1172  0.03236  0.1982")
    assert rows(stepper)["LSE = m + log l"] == "3.614"
    assert stepper.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"


def test_the_stepper_returns_to_the_same_states_by_keyboard(stepper):
    stepper.get_by_role("button", name="Next").focus()
    seen = [stepper.locator("table").inner_text()]
    for _ in range(3):
        stepper.page.keyboard.press("ArrowRight")
        seen.append(stepper.locator("table").inner_text())
    assert len(set(seen)) == 4
    for state in reversed(seen[:-1]):
        stepper.page.keyboard.press("ArrowLeft")
        assert stepper.locator("table").inner_text() == state
