"""`bench training` without its clock: the gate, the contestants and the targets."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from benches.cases.attention import Case
from benches.cases.training import GROUPS, cases
from benches.contestants import training as contestants
from benches.harness.measure import check
from benches.names import PYTORCH, TINY_LLM
from benches.training import is_quick, rows_of

SMALL = Case("f32", "float32", 4, 2, 40, 40, 16, causal=True)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_every_group_has_distinct_rows_of_its_own_and_a_quick_one() -> None:
    for group in GROUPS:
        rows = list(cases(group))
        assert len({row.name for row in rows}) == len(rows)
        assert all(row.group == group for row in rows)
        assert any(map(is_quick, rows))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradients_of_tiny_llm_and_mlx_pass_the_gate(dtype, causal) -> None:
    case = Case("f32", dtype, 4, 2, 40, 40, 16, causal)
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)
    for contestant in (contestants.tiny_llm(case, inputs, 1), contestants.mx_fast(case, inputs)):
        assert check(contestant, gate).passed, contestant.name


@pytest.mark.parametrize("which", [0, 1, 2], ids=["dQ", "dK", "dV"])
def test_a_wrong_gradient_does_not_pass(which) -> None:
    inputs = contestants.Inputs(SMALL)
    gradients = contestants.tiny_llm(SMALL, inputs, 1).call()
    gate = contestants.gate(SMALL, inputs)
    assert gate.error(contestants.by_head(gradients)) <= gate.tolerance
    gradients[which] = gradients[which] * 1.001
    assert gate.error(contestants.by_head(gradients)) > gate.tolerance


def test_a_row_of_the_gate_is_a_head() -> None:
    inputs = contestants.Inputs(SMALL)
    matrix = contestants.by_head(contestants.tiny_llm(SMALL, inputs, 1).call())
    gate = contestants.gate(SMALL, inputs)
    assert matrix.shape == (4 + 2 + 2, 40 * 16)
    assert list(gate.rows) == [2, 3, 5, 7]
    assert np.abs(contestants.oracle(SMALL, inputs) - matrix[gate.rows]).max() < 1e-5


def test_a_row_has_its_contestants_and_targets_for_two_threads() -> None:
    one, two = rows_of(SMALL, [1, 2], repeats=1)
    assert one.entries[0].name == TINY_LLM
    assert all(entry.seconds for entry in one.entries)
    assert one.flops == 3.5 * SMALL.flops
    assert not one.verdicts
    assert [verdict.what for verdict in two.verdicts] == [f"speed over {PYTORCH}"]
