"""`bench schedules`: the printed counters are those of a run, and bytes follow from the schedule."""

from __future__ import annotations

import json
from dataclasses import replace

import mlx.core as mx
import pytest

from benches import schedules
from benches.cases.schedules import CASES, NAMES, SCHEDULES, Case
from benches.report.pages import SCHEDULES as RECORD
from benches.report.schedules import schedules_page, schedules_table
from tiny_llm.attention import attention_reference, flash_attention
from tiny_llm.runtime.extension import load_extension

PREFILL = Case("prefill", 256, 256)
DECODE = Case("decode", 1, 4096)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.mark.parametrize("case", [PREFILL, replace(PREFILL, window=40, dtype="bfloat16"), DECODE], ids=str)
def test_the_printed_counters_are_those_of_a_run(case: Case) -> None:
    runs = (
        lambda *x: attention_reference(*x, causal=True, window=case.window),
        lambda *x: flash_attention(*x, causal=True, window=case.window, schedule="v1"),
        lambda *x: flash_attention(*x, causal=True, window=case.window),
    )
    record = schedules.compare_all([case])
    lines = schedules_table(record).splitlines()[2:]
    for run, row, line in zip(runs, record["rows"], lines, strict=True):
        mx.eval(run(*case.inputs()))
        last = load_extension().last_run()
        assert row["as_explained"]
        assert f"| {last['path']} | " in line
        assert f" | {last['tiles_visited']} of {last['tiles_total']} | {last['splits']} | yes |" in line


def test_every_schedule_takes_part() -> None:
    record = schedules.compare_all([PREFILL, DECODE])
    assert [row["schedule"] for row in record["rows"]] == ["naive", "V1", "V2", "naive", "V1", "split-K"]
    assert record["rows"][-1]["splits"] > 1


def test_v1_reads_keys_once_and_moves_states_where_v2_reads_keys_again() -> None:
    naive, one, two = schedules.compare_all([PREFILL])["rows"]
    rows, keys = two["tile"]
    assert one["kv_bytes"] == naive["kv_bytes"] == 2 * 2 * 256 * 64 * 4
    assert two["kv_bytes"] == two["tiles_visited"] * keys * 2 * 64 * 4
    assert one["intermediate_bytes"] == 2 * one["tiles_visited"] * rows * (64 + 2) * 4
    assert two["intermediate_bytes"] == 0
    assert naive["intermediate_bytes"] == 4 * 8 * 256 * 256 * 4


def test_memory_stays_below_the_workspace() -> None:
    """Up to a megabyte, for pages and the log-sum-exp."""
    for row in schedules.compare_all([PREFILL, DECODE])["rows"]:
        assert row["measured_bytes"] <= row["workspace_bytes"] + 2**20, row["schedule"]


def test_a_run_that_differs_from_its_plan_is_an_error(monkeypatch, capsys) -> None:
    monkeypatch.setattr(schedules, "CASES", (PREFILL,))
    assert schedules.main([]) == 0
    other = load_extension().last_run() | {"tiles_visited": 1}
    monkeypatch.setattr(load_extension(), "last_run", lambda: other)
    assert schedules.main([]) == 1
    assert "| **no** |" in capsys.readouterr().out


def test_the_page_has_the_record_and_keeps_its_text() -> None:
    record = schedules.compare_all([PREFILL])
    page = schedules_page("before\n<!-- schedules: generated -->\nold\n<!-- end -->\nafter", record)
    assert page.startswith("before\n<!-- schedules: generated -->\n\n| work |")
    assert page.endswith("<!-- end -->\nafter")
    assert "old" not in page


def test_the_record_has_every_case() -> None:
    rows = json.loads(RECORD.read_text())["rows"]
    assert [row["work"] for row in rows] == [case.name for case in CASES for _ in SCHEDULES]
    assert {row["schedule"] for row in rows} == set(NAMES.values())
    assert all(row["as_explained"] for row in rows)
