"""`bench threads` without its clock: regions by operation, the choice of threads, tables and picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mlx.core as mx
import pytest

from benches import threads
from benches.cases import attention
from benches.cases.models import EMBEDDED, Case
from benches.cases.pages import Paged
from benches.cases.threads import GROUPS, Attention, ModelStep, PoolCost, cases, is_quick
from benches.cases.varlen import Varlen
from benches.contestants.worker import WorkerOptions, build_service
from benches.harness import machine
from benches.harness.regions import RegionLog, by_operation
from benches.harness.thread_choice import Measured, best, candidates, report
from benches.names import TINY_LLM
from benches.report.threads import efficiency, page, picture
from tiny_llm.runtime.extension import load_extension


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


# Regions


def region(operation: str, items: int, begin: int, end: int, *, busy: int = 0, longest: int = 0) -> Any:
    fields = {"threads": 2 if items else 1, "busy": busy, "longest": longest}
    return {"operation": operation, "items": items, "begin": begin, "end": end, **fields}


def test_regions_are_summed_by_operation() -> None:
    log = [
        region("down", 8, 100, 300, busy=240, longest=180),
        region("down", 8, 300, 400, busy=160, longest=100),
        region("down", 0, 50, 450),
        region("other", 4, 500, 600, busy=80, longest=80),
        region("append", 0, 700, 720),
    ]
    down, other, append = by_operation(log, 2)
    assert (down.operation, down.regions, down.imbalance) == ("down", 1, 280 / 200)
    assert (down.seconds, down.in_regions) == pytest.approx((200e-9, 150e-9))
    assert (other.seconds, other.in_regions) == pytest.approx((50e-9, 50e-9))  # outside an operation
    assert (append.regions, append.imbalance) == (0, None)
    assert append.seconds == pytest.approx(10e-9)


def test_decode_steps_are_logged_with_every_block_and_the_head() -> None:
    """The embedded model is too small for parallel regions, but its operations are logged all the same."""
    service = build_service(WorkerOptions(TINY_LLM, EMBEDDED, "bfloat16", 1, 512))
    service.start_decoding(TINY_LLM, 32)
    log = RegionLog()
    assert service.decode(TINY_LLM, 10, log.timed) > 0
    assert {each.operation for each in by_operation(log.regions, 10)} >= {
        "query, key and value", "attention", "output", "gate and up", "down", "quantized product"
    }  # fmt: skip
    assert load_extension().end_region_log() == []
    assert service.prefill(TINY_LLM, 32, log.timed) > 0
    assert log.regions


# Cases and rows


def test_all_rows_have_a_name_of_their_own_and_each_group_has_quick_ones() -> None:
    found = [case for group in GROUPS for case in cases(group)]
    assert len({case.name for case in found}) == len(found)
    assert {case.group for case in found if is_quick(case)} == set(GROUPS) - {"large"}
    assert [case.name for case in found if not is_quick(case)] == [
        "decode after 2048 tokens", "prefill of 2048 tokens", "qwen2-7b decode after 128 tokens"
    ]  # fmt: skip


@pytest.mark.parametrize(("cpus", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_the_numbers_of_threads(cpus: int, expected: list[int]) -> None:
    assert threads.thread_counts(cpus) == expected


def test_a_run_measures_each_number_of_threads_in_its_own_process(tmp_path: Path) -> None:
    file = tmp_path / "threads.json"
    names = ["region", "barrier", "argmax"]
    assert threads.main(["--only", *names, "--threads", "1", "2", "--repeats", "1", "--json", str(file)]) == 0
    record = json.loads(file.read_text())
    assert [(row["row"], row["threads"]) for row in record["rows"]] == [
        (name, count) for name in ("region", "barrier", "bf16 argmax 1 row") for count in (1, 2)
    ]
    assert "### Efficiency" in page(record)


def test_more_threads_than_the_process_may_use_give_a_row_without_a_time(record: Any) -> None:
    """As of a container whose quota is less than its CPUs."""
    count = machine.cpus() + 1
    (row,) = threads.rows_of(PoolCost("region"), count, 1)
    assert row.entries == []
    assert row.missing[TINY_LLM].startswith(f"pool_costs: threads: got {count}, expected 1 to")
    assert f"| {count} |  |  |  |" in page({**record, "rows": [row.record()]})


SHORT = attention.Case("f32", "float32", 4, 2, 40, 40, 16, True)
ATTENTION = [
    Attention("forward", SHORT),
    Attention("forward", replace(SHORT, L=1, causal=False)),
    Attention("backward", SHORT),
    Attention("varlen", Varlen((3, 20), "float32", 4, 2, 16)),
    Attention("paged", Paged((5, 40), 1, 16, "PHSE", 4, 2, 16)),
]


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.name)
def test_attention_of_each_kind_is_ours_alone_and_right(case: Attention) -> None:
    (row,) = threads.rows_of(case, 1, 1)
    assert (row.group, row.name, row.threads) == ("operations", case.name, 1)
    (own,) = row.entries
    assert own.name == TINY_LLM
    assert own.seconds is not None
    assert row.flops > 0


def test_a_step_of_a_model_has_its_operations_and_its_share_of_the_bandwidth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "TARGET_THREADS", 1)
    for step in (ModelStep("decode", 16), ModelStep("prefill", 16)):
        monkeypatch.setattr(
            ModelStep,
            "case",
            property(lambda self: Case("", self.kind, EMBEDDED, "bfloat16", self.prompt, 4)),
        )
        (row,) = threads.rows_of(step, 1, 1)
        record = row.record()
        assert record["operations"]
        whole = record["outside"] + sum(each["seconds"] for each in record["operations"])
        assert whole == pytest.approx(record["logged_seconds"])
        assert record["tokens"] == (1 if step.kind == "decode" else 16)
        whats = [verdict["what"] for verdict in record["targets"]]
        assert whats == (["share of the read bandwidth"] if step.kind == "decode" else [])


# The choice


def test_candidates_are_about_two_for_each_doubling() -> None:
    assert candidates(1) == [1]
    assert candidates(2) == [1, 2]
    assert candidates(16) == [1, 2, 3, 4, 6, 8, 12, 16]
    assert candidates(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]


def test_the_choice_is_the_smallest_number_that_is_about_as_fast_as_the_fastest() -> None:
    measured = {
        1: Measured(14e9, 0),
        8: Measured(77e9, 2e-6),
        12: Measured(97e9, 3e-6),
        16: Measured(98e9, 3e-6),
    }
    assert best(measured) == 12
    line, *why = report(16, measured).splitlines()
    assert line == "TINY_LLM_THREADS=16,12"
    assert why == [
        "A decode step that reads 280 MB in 125 regions takes at least, in ms by number of threads, "
        "1: 20.00, 8: 3.89, 12: 3.26, 16: 3.23.",
        "With 12: 97 GB/s, and 3.0 µs for a region.",
    ]
    assert report(16, measured, busy=True).splitlines()[-1].startswith("Other processes ran")
    slow_regions = {**measured, 12: Measured(97e9, 30e-6), 16: Measured(98e9, 60e-6)}
    assert best(slow_regions) == 8
    assert report(8, {8: measured[8]}).splitlines()[0] == "TINY_LLM_THREADS=8"


def test_the_line_of_the_choice_can_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINY_LLM_THREADS", ",".join(map(str, load_extension().cpu_threads())))
    assert threads.main(["--choose"]) == 0
    name, value = capsys.readouterr().out.splitlines()[0].split("=")
    assert name == "TINY_LLM_THREADS"
    before = load_extension().cpu_threads()
    load_extension().set_cpu_threads(value)
    chosen = load_extension().cpu_threads()
    load_extension().set_cpu_threads(",".join(map(str, before)))
    assert chosen[0] == before[0]
    assert 1 <= chosen[1] <= chosen[0]


# The report


def timed(seconds: float) -> Any:
    spread = dict.fromkeys(("median", "low", "high", "p10", "p90"), seconds)
    return [{
        "name": TINY_LLM, "isa": None, "variant": "", "passed": True, "error": 0.0,
        "seconds": {**spread, "samples": 3}, "share_of_peak": 0.5,
    }]  # fmt: skip


def row(name: str, group: str, count: int, seconds: float, **fields: Any) -> Any:
    found = {"row": name, "group": group, "threads": count, "tokens": 0, "bytes": 0, "missing": {}}
    limits = {"peak avx512": {"median": 1e11 * count**0.5}}
    return {**found, "targets": [], "contestants": timed(seconds), "ceilings": limits, **fields}


def step(count: int, seconds: float) -> Any:
    down = {"operation": "down", "regions": 24.0, "seconds": seconds / 2, "in_regions": seconds / 4}
    return row(
        "decode after 128 tokens", "model", count, seconds, tokens=1, bytes=280_000_000, outside=seconds / 2,
        operations=[{**down, "imbalance": 1.25 if count > 1 else None}],
        ceilings={"bandwidth": {"median": 20e9 * count}},
    )  # fmt: skip


def amx(peak: float, others: float) -> Any:
    return {"peak amx": {"median": peak}, "others running": {"high": others}}


@pytest.fixture
def record() -> Any:
    rows = [
        row("region", "pool", 1, 1e-7), row("region", "pool", 8, 4e-6), row("wake-up", "pool", 8, 50e-6),
        step(1, 20e-3), step(8, 5e-3),
        row("forward", "operations", 1, 8e-3), row("forward", "operations", 8, 1.25e-3),
        row("backward", "operations", 8, 1e-3),
        row("varlen", "operations", 1, 8e-3, ceilings=amx(1e12, others=1.0)),
        row("varlen", "operations", 8, 1e-3, ceilings=amx(8e12, others=0.0)),
    ]  # fmt: skip
    machine = {"cpu": "a CPU", "cpus_allowed": 8, "cpus_present": 8, "system": "Linux", "python": "3.12"}
    origin = {"versions": {}, "changed_files": False, "commit": "0" * 40, "measured": "2026-11-28"}
    return {
        **machine,
        **origin,
        "benchmark": "threads",
        "groups": GROUPS,
        "threads": [1, 8],
        "repeats": 3,
        "rows": rows,
    }


def test_the_page_has_costs_steps_operations_and_efficiency(record: Any) -> None:
    lines = page(record).splitlines()
    assert "| 8 | 4 µs | 50 µs |  |" in lines
    decoded = (
        "| decode after 128 tokens | 8 | 200 tok/s | 5 ms | 2.5 ms | 24 | 56.0 GB/s | 160.0 GB/s | 35% |"
    )
    assert decoded in lines
    assert "| down | 10 ms | 2.5 ms | 1.25 ms | 24 | 1.25 |" in lines
    assert "| decode after 128 tokens | 20 ms | 5 ms, **0.50** | 1.00 | 50% |" in lines
    assert "| forward | 8 ms | 1.25 ms, 0.80 | 0.35 | 50% |" in lines
    assert "| varlen | 8 ms (disturbed) | 1 ms, 1.00 | 1.00 | 50% |" in lines
    record["rows"][4]["ceilings"]["peak avx512"] = {"median": 0.0}
    record["rows"][5]["ceilings"]["peak avx512"] = {"median": 0.0}
    assert "| forward | 8 ms | 1.25 ms, 0.80 |  | 50% |" in page(record)
    assert not any(line.startswith("| backward") for line in lines)  # there is no time with one thread
    assert efficiency(8.0, 1.0, 8) == 1.0


@pytest.mark.parametrize("kept", [*GROUPS, None])
def test_a_record_of_some_rows_has_a_page_and_a_picture(record: Any, kept: str | None) -> None:
    rows = [each for each in record["rows"] if each["group"] == kept]
    some = {**record, "rows": rows}
    assert page(some).endswith("Targets: 0 met, 0 missed, 0 not measured.")
    assert ElementTree.fromstring(picture(some)).tag.endswith("svg")


def test_the_picture_shows_every_cost_step_and_operation(record: Any) -> None:
    drawn = picture(record)
    for text in ("region", "wake-up", "decode after 128 tokens", "limit of the bandwidth", "down", "outside"):
        assert f">{text}<" in drawn


def test_choose_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        threads.main(["--choose", "--quick"])
    assert "--choose" in capsys.readouterr().err
