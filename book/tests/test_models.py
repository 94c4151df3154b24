"""The models of the widgets under Node, against fixtures in float64."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser  # needs Node

BOOK = Path(__file__).resolve().parents[1]
# The golden run of the stepper: m, l, alpha, O'[0] and O'[3] after each tile.
GOLDEN = [
    (0.375, 5.651413550821609, 0, -0.117840916, 0.256456315),
    (0.9921875, 6.6261542212474875, 0.5394595359337269, -0.796665792, 0.978827979),
    (0.9921875, 9.764654720342117, 1, -0.607354039, 1.383042103),
    (1.3203125, 9.911438204289409, 0.7202729799554398, -0.890709109, 1.964400934),
]


def test_the_oracle_has_the_golden_run(fixtures):
    for state, (m, l, alpha, first, fourth) in zip(  # noqa: E741
        fixtures.online_softmax()["states"][1:], GOLDEN, strict=True
    ):
        assert (state["m"], state["alpha"]) == (m, pytest.approx(alpha, abs=1e-15))
        assert state["l"] == pytest.approx(l, rel=1e-14)
        assert (state["acc"][0], state["acc"][3]) == (
            pytest.approx(first, abs=1e-9),
            pytest.approx(fourth, abs=1e-9),
        )


def test_models_follow_the_oracle(fixtures, tmp_path):
    softmax = fixtures.online_softmax()
    softmax["states"][0]["m"] = None  # JSON has no infinity; the test of it is in models.mjs
    record = {"online_softmax": softmax, "tile_map": fixtures.tile_map(), "traffic": fixtures.traffic()}
    file = tmp_path / "fixtures.json"
    file.write_text(json.dumps(record, default=float))
    done = subprocess.run(
        ["node", "--test", "tests/models.mjs"],
        cwd=BOOK,
        env={**os.environ, "FIXTURES": str(file)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "# fail 0" in done.stdout
