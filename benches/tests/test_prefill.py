"""`bench prefill` without its clock: rows, gate, contestants and reports."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import mlx.core as mx
import pytest

from benches import prefill
from benches.cases.packed import LENGTHS, PREFILL_GROUPS, Prompts, is_quick
from benches.cases.packed import prefill as cases
from benches.contestants import packed as contestants
from benches.harness import machine
from benches.harness.measure import check
from benches.names import MX_FAST, NAIVE_TILE, STANDARD, TINY_LLM, Missing
from benches.report.latencies import bars
from benches.suite import Record

SMALL = Prompts("short", 2, 40, 2, heads=4, kv_heads=2, D=32)
LONG = replace(SMALL, length=130)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_the_rows_are_the_four_configurations() -> None:
    rows = [case for group in PREFILL_GROUPS for case in cases(group)]
    sizes = [(case.count, case.length, case.samples) for case in rows]
    assert sizes == [(2, 60, 100), (4, 64, 100), (2, 1024, 30), (1, 4096, 10)]
    gflop = [round(case.flops / 1e9, 3) for case in rows]
    assert gflop == [0.06, 0.136, 17.197, 137.473]
    assert sum(map(is_quick, rows)) == 2
    assert len(LENGTHS) == 12


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_contestant_passes_the_gate(dtype) -> None:
    case = replace(SMALL, dtype=dtype)
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)
    found = [contestants.tiny_llm(case, inputs, 1), contestants.mx_fast(case, inputs)]
    found += [contestants.standard(case, inputs), contestants.naive_tile(case, inputs)]
    for contestant in found:
        outcome = check(contestant, gate)
        assert outcome.passed, contestant.name
        assert 0 < outcome.absolute_error < 0.1
        assert outcome.peak_bytes >= inputs.query.nbytes


def test_a_prompt_that_sees_its_neighbour_does_not_pass() -> None:
    inputs = contestants.Inputs(SMALL)
    gate = contestants.gate(SMALL, inputs)
    joined = contestants.tiny_llm(replace(SMALL, count=1, length=80), inputs, 1)
    assert not check(joined, gate).passed


def test_a_prompt_beyond_the_tile_is_named_as_missing() -> None:
    inputs = contestants.Inputs(LONG)
    with pytest.raises(Missing, match="beyond 128 tokens"):
        contestants.naive_tile(LONG, inputs)
    (row,) = prefill.rows_of(LONG, [1], repeats=1)
    assert [entry.name for entry in row.entries] == [TINY_LLM, MX_FAST, STANDARD]
    assert row.missing == {NAIVE_TILE: "a prompt beyond 128 tokens does not fit into one tile"}


@pytest.fixture(scope="module")
def record() -> Record:
    mx.set_default_device(mx.cpu)
    rows = [row.record() for case in (SMALL, LONG) for row in prefill.rows_of(case, [1], repeats=2)]
    run = {"benchmark": "prefill", "groups": dict(PREFILL_GROUPS), "threads": [1], "repeats": None}
    return {**machine.describe(), **run, "rows": rows}


def test_the_page_has_a_line_for_each_contestant_and_the_threadgroups(record: Record) -> None:
    text = prefill.page(record)
    assert "| over standard | over mx.fast | max error | peak MB |" in text
    for name in (MX_FAST, STANDARD, NAIVE_TILE):
        assert f"| f16 4/2 D=32, 2 x 40 tokens | 1 | {name} | " in text
    assert "naive tile: a prompt beyond 128 tokens does not fit into one tile" in text
    assert "| f16 4/2 D=32, 2 x 130 tokens | 0.00872 | 0.27 |" in text
    assert "| 2 x 40 tokens, 4 heads | (2, 4) | 8 | 1 | (2, 4, 2) | 16 | 1 |" in text
    assert "| 2 x 130 tokens, 4 heads | does not fit |  |  | (2, 4, 5) | 40 | 1 |" in text


def test_a_wrong_result_has_no_time(record: Record) -> None:
    wrong = {**record["rows"][0]["contestants"][1], "seconds": None}
    row = {**record["rows"][0], "contestants": [record["rows"][0]["contestants"][0], wrong]}
    text = prefill.page({**record, "rows": [row]})
    assert f"| {MX_FAST} | wrong result |  |  |" in text


def test_the_picture_names_every_row_and_contestant(record: Record) -> None:
    texts = [element.text for element in ElementTree.fromstring(bars(record)).iter() if element.text]
    assert {row["row"] for row in record["rows"]} <= set(texts)
    assert {TINY_LLM, MX_FAST, STANDARD, NAIVE_TILE} <= set(texts)
