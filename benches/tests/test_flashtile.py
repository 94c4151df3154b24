"""`bench flashtile` without its clock: rows, gates and contestants."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest

from benches import flashtile
from benches.cases.flashtile import GROUPS, Case, cases, is_quick
from benches.contestants import flashtile as contestants
from benches.harness import machine
from benches.harness.measure import check
from benches.names import GQA, MX_FAST, NAIVE, TINY_LLM, V1

SMALL = Case("module", "float32", 40, causal=True, batch=2, embed_dim=48, heads=6)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_the_rows_are_those_of_flashtile_in_both_types() -> None:
    for group in GROUPS:
        rows = list(cases(group))
        assert len({row.name for row in rows}) == len(rows) == 2 * 2 * 6
        assert {(row.batch, row.embed_dim, row.heads, row.head_dim) for row in rows} == {(4, 768, 12, 64)}
        assert any(map(is_quick, rows))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("group", list(GROUPS))
def test_every_layer_passes_its_gate(group, causal, dtype) -> None:
    case = replace(SMALL, group=group, causal=causal, dtype=dtype)
    inputs = contestants.Inputs(case)
    names = [TINY_LLM, V1, MX_FAST, NAIVE, GQA][: 5 if group == "module" else 4]
    assert list(inputs.layers) == names
    shared = contestants.gate(case, inputs)
    for name in names:
        each = contestants.contestant(case, inputs, name)
        assert check(each, each.gate or shared).passed, name


def test_a_layer_that_is_not_causal_does_not_pass() -> None:
    inputs = contestants.Inputs(SMALL)
    gate = contestants.gate(SMALL, inputs)
    inputs.layers[TINY_LLM].causal = False
    assert not check(contestants.contestant(SMALL, inputs, TINY_LLM), gate).passed


def test_long_rows_are_without_those_that_hold_all_scores(monkeypatch) -> None:
    monkeypatch.setattr(flashtile, "MOST_DENSE_TOKENS", 39)
    (row,) = flashtile.rows_of(SMALL, 1, repeats=1)
    assert [entry.name for entry in row.entries] == [TINY_LLM, V1, GQA]
    assert row.missing == dict.fromkeys((MX_FAST, NAIVE), "measured to 39 tokens only")
    run = {"benchmark": "flashtile", "groups": {}, "threads": [1], "repeats": 1, "rows": [row.record()]}
    assert f"| {SMALL.name} | 1 | {GQA} | " in flashtile.page({**machine.describe(), **run})
