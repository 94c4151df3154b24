"""`bench training` without its clock: the gate, the contestants and the targets."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from benches import training
from benches.cases.attention import Case
from benches.cases.training import GROUPS, LAYERS, LayerCase, cases, is_quick
from benches.contestants import training as contestants
from benches.harness import machine
from benches.harness.measure import check
from benches.harness.row import Row
from benches.names import MX_FAST, NO_WINDOW, PYTORCH, TINY_LLM
from benches.report.pages import machine_page
from benches.suite import Record
from benches.targets import training as targets

WINDOW = Case("window", "float32", 2, 2, 300, 300, 16, causal=True, window=30)
SMALL = Case("f32", "float32", 4, 2, 40, 40, 16, causal=True)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_every_group_has_distinct_rows_of_its_own_and_the_plain_ones_a_quick_one() -> None:
    for group in GROUPS:
        rows = list(cases(group))
        assert len({row.name for row in rows}) == len(rows)
        assert all(row.group == group for row in rows)
        assert any(map(is_quick, rows)) == (group in ("f32", "bf16"))


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
    one, two = training.rows_of(SMALL, [1, 2], repeats=1)
    assert one.entries[0].name == TINY_LLM
    assert all(entry.seconds for entry in one.entries)
    assert one.flops == 3.5 * SMALL.flops
    assert not one.verdicts
    assert [verdict.what for verdict in two.verdicts] == [f"speed over {PYTORCH}"]


def record_of(*rows: Row) -> Record:
    run = {"benchmark": "training", "groups": dict(GROUPS), "threads": [1, 2], "repeats": 1}
    return {**machine.describe(), **run, "rows": [row.record() for row in rows]}


def test_the_page_has_tails_speedups_and_the_targets_of_a_row_once() -> None:
    (row,) = training.rows_of(SMALL, [2], repeats=2)
    text = training.page(record_of(row))
    assert "| median ms | p10 | p90 | over PyTorch | over mx.fast | over ours, no window |" in text
    first, *others = [line for line in text.splitlines() if line.startswith(f"| {SMALL.name} | 2 |")]
    assert f"speed over {PYTORCH}" in first
    assert others
    assert all(line.endswith(" |  |") for line in others)
    page = machine_page("here", {"training": record_of(row)})
    assert "## Attention and its gradient\n\n![Attention and its gradient](here-training.svg)" in page


def test_the_length_of_the_target_is_compared_with_mx_fast_too(monkeypatch) -> None:
    monkeypatch.setattr(targets, "OVER_MX_FAST_TOKENS", SMALL.L)
    (row,) = training.rows_of(SMALL, [2], repeats=1)
    limits = {verdict.what: verdict.limit for verdict in row.verdicts}
    assert limits == {f"speed over {PYTORCH}": 1.2, f"speed over {MX_FAST}": 20.0}


def test_a_window_runs_beside_attention_without_one_and_is_bound_by_its_tiles() -> None:
    (row,) = training.rows_of(WINDOW, [2], repeats=1)
    assert [entry.name for entry in row.entries] == [TINY_LLM, NO_WINDOW]
    assert all(entry.seconds for entry in row.entries)
    assert row.missing.keys() == {MX_FAST, PYTORCH}
    visited, total = row.details["tiles"]
    assert 0 < visited < total
    (bound,) = row.verdicts
    full = row.seconds(NO_WINDOW)
    assert full
    assert bound.limit == pytest.approx(1.4 * visited / total * full)


def test_a_window_off_by_one_does_not_pass() -> None:
    inputs = contestants.Inputs(WINDOW)
    gate = contestants.gate(WINDOW, inputs)
    assert check(contestants.tiny_llm(WINDOW, inputs, 1), gate).passed
    assert not check(contestants.tiny_llm(replace(WINDOW, window=31), inputs, 1), gate).passed


def test_the_oracle_in_parts_is_the_oracle_at_once(monkeypatch) -> None:
    for case in (WINDOW, replace(WINDOW, causal=False), replace(WINDOW, window=None)):
        inputs = contestants.Inputs(case)
        whole = contestants.oracle(case, inputs)
        monkeypatch.setattr(contestants, "ORACLE_ROWS", 70)
        assert np.allclose(contestants.oracle(case, inputs), whole, rtol=1e-12, atol=1e-14)
        monkeypatch.undo()


def test_memory_of_a_gradient_is_that_of_saved_tensors_and_gradients() -> None:
    case = Case("memory", "float32", 4, 2, 2048, 2048, 64, causal=True)
    (row,) = training.rows_of(case, [1, 2], repeats=1)
    assert not row.entries
    assert [(each.limit, each.met) for each in row.verdicts] == [(1.1, True), (2.1, True)]
    assert row.verdicts[0].value > 0.99
    text = training.page(record_of(row))
    assert f"| {case.name} | 2 |" in text
    assert "peak over saved tensors and gradients 1.0" in text


@pytest.mark.parametrize("layer", LAYERS)
def test_memory_of_a_layer_doubles_with_its_length(layer) -> None:
    (row,) = training.rows_of(LayerCase(layer, length=1024, embed_dim=64), [1], repeats=1)
    (growth,) = row.verdicts
    assert growth.met
    assert growth.value > 1.8  # what does not grow, such as the gradients of the weights, is small
