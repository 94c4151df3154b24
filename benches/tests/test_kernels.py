"""Kernels and layers without the clock: gate, rows, targets, processes and the picture."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mlx.core as mx
import numpy as np
import pytest

from benches import kernels, layers
from benches.cases.layers import LAYERS, layer_cases
from benches.cases.products import MLX, SHAPES, dense_cases, packed_cases
from benches.cases.rows import row_cases
from benches.contestants.attention import OURS, TORCH
from benches.harness import machine
from benches.harness.measured import Measured
from benches.harness.operation import Case, Operation, evaluated, exact, measure, random_array, sampled
from benches.harness.row import Entry
from benches.report import page, roofline
from benches.report import tables as report
from tiny_llm.benchmark.harness import Samples


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def doubling(at_once: int = 1, **others: Any) -> Operation:
    """Twice a matrix, by ours and by whoever is named."""
    x = random_array((40, 30), "float32", 0)
    calls = {OURS: evaluated(lambda: x + x)}
    calls |= {name: evaluated(partial(build, x)) for name, build in others.items()}
    sample = sampled(40, 30, most_rows=4)
    right = 2 * exact(x)[np.ix_(*sample)]
    return Operation("float32", 40 * 30, 2 * x.nbytes, calls, sample, right, at_once=at_once)


# Gate


def test_everybody_who_is_right_is_timed_and_held_against_the_roofline() -> None:
    row = measure(Case("rows", "double", lambda threads: doubling(mlx=lambda x: 2 * x)), 1, repeats=2)
    assert [entry.name for entry in row.entries] == [OURS, "mlx"]
    assert all(entry.seconds and entry.share_of_peak for entry in row.entries)
    assert {name.split()[0] for name in row.ceilings} == {"peak", "bandwidth", "others"}


def test_what_a_call_does_several_times_is_counted_as_often() -> None:
    """One call in eight waits, so that each of the eight has an eighth of that."""
    wait, at_once, built = 0.08, 8, []

    def operation(threads: int) -> Operation:
        several = doubling(at_once=at_once)
        double = several.calls[OURS]

        def build() -> mx.array:
            if len(built) % at_once == 0:
                time.sleep(wait)
            built.append(threads)
            return double()

        several.calls[OURS] = evaluated(build, at_once)
        return several

    (entry,) = measure(Case("rows", "double", operation), 1, repeats=2).entries
    assert len(built) % at_once == 0
    assert entry.seconds is not None
    assert wait / at_once <= entry.seconds.median < wait


def test_an_error_inside_or_outside_the_sample_is_found() -> None:
    outside = next(row for row in range(40) if row not in sampled(40, 30, most_rows=4)[0])
    wrong = {
        "in the sample": lambda x: mx.where(mx.arange(40)[:, None] == 0, 2.001 * x, 2 * x),
        "outside": lambda x: mx.where(mx.arange(40)[:, None] == outside, 2.001 * x, 2 * x),
        "not a number": lambda x: 2 * x * mx.where(mx.arange(30) == 3, mx.nan, 1.0),
        "another shape": lambda x: 2 * x[:, :1] + mx.zeros((40, 31)),
    }
    for name, build in wrong.items():
        operation = doubling(mlx=build)
        row = measure(Case("rows", name, partial(lambda made, threads: made, operation)), 1, repeats=1)
        assert [entry.seconds is not None for entry in row.entries] == [True, False], name


def test_a_sample_has_both_ends_and_no_more_than_asked_for() -> None:
    rows, columns = sampled(1000, 7, most_rows=5)
    assert (rows[0], rows[-1], len(rows)) == (0, 999, 5)
    assert list(columns) == list(range(7))


# Rows


def test_rows_have_distinct_names() -> None:
    for cases in (dense_cases(), packed_cases(), row_cases(), layer_cases("decode"), layer_cases("prefill")):
        names = [case.name for case in cases]
        assert names
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["bf16 4 bit 0.5b 8 x 896 -> 4864", "bf16 8 bit 0.5b 1 x 896 -> 4864"])
def test_packed_products_pass_their_gate(name: str) -> None:
    case = next(case for case in packed_cases() if case.name == name)
    row = measure(case, 1, repeats=1)
    assert [entry.seconds is not None for entry in row.entries] == [True, True]
    rows = int(name.split()[4])
    assert row.flops == 2 * rows * 4864 * 896
    bits = int(name.split()[1])
    assert row.bytes == 4864 * 896 * (bits + 0.5) / 8 + 2 * rows * (896 + 4864)


def test_dense_products_pass_their_gate() -> None:
    for dtype in ("f32", "bf16"):
        case = next(case for case in dense_cases() if case.name == f"{dtype} 0.5b 1 x 896 -> 896")
        row = measure(case, 1, repeats=1)
        assert all(entry.seconds for entry in row.entries)
        assert MLX in [entry.name for entry in row.entries]
        assert (OURS in row.missing) != (OURS in [entry.name for entry in row.entries])


def test_products_are_those_of_the_models() -> None:
    from tiny_llm.loading.weights.random_model import SIZES

    for model, shapes in SHAPES.items():
        hidden, inner, *_ = SIZES[f"qwen2-{model}"]
        assert shapes == ((hidden, hidden), (inner, hidden), (hidden, inner))


def test_row_kernels_pass_their_gate() -> None:
    for case in row_cases():
        if case.name.endswith(" 1 row"):
            assert all(entry.seconds for entry in measure(case, 1, repeats=1).entries), case.name


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_agree_with_plain_operations(layer: str) -> None:
    case = next(case for case in layer_cases("decode") if case.name == f"f32 {layer}, 1 token")
    row = measure(case, 1, repeats=2)
    assert [entry.name for entry in row.entries if entry.seconds] == [OURS, "mlx f32"]


# Targets


def entry(name: str, seconds: float, floor: float = 0.0) -> Entry:
    return Entry(name, None, "", 0.0, Samples((seconds,)), 1e6, floor)


def verdicts(*entries: Entry) -> dict[str, bool | None]:
    row = Measured("linear", "f32 x", 2, entries=list(entries))
    return {verdict.what: verdict.met for verdict in kernels.judge(row)}


def test_a_dense_product_beats_pytorch_or_comes_near_the_roofline() -> None:
    assert verdicts(entry(OURS, 1.0, 0.1), entry(TORCH, 1.1)) == {"speed over PyTorch": True}
    assert verdicts(entry(OURS, 1.0, 0.85), entry(TORCH, 1.0)) == {"share of the roofline": True}
    assert verdicts(entry(OURS, 1.0, 0.84), entry(TORCH, 1.0)) == {"speed over PyTorch": False}
    assert verdicts(entry(OURS, 1.0, 0.84)) == {"speed over PyTorch": None}
    assert verdicts(entry(TORCH, 1.0)) == {"speed over PyTorch": None}


# Reports


@pytest.fixture
def record() -> dict[str, Any]:
    rows = []
    for name, flops, nbytes in (("f32 1 x 8 -> 8", 1e6, 10**8), ("bf16 512 x 8 -> 8", 1e9, 10**6)):
        row = Measured("linear", name, 2, flops=flops, bytes=nbytes)
        row.entries = [replace(entry(name, 1e-3, 5e-4), flops=flops) for name in (OURS, TORCH)]
        row.ceilings = {"peak avx512": Samples((1e12,)), "bandwidth": Samples((3e10,))}
        rows.append(row.record())
    run = {"groups": kernels.GROUPS, "threads": [1, 2], "repeats": 3, "rows": rows}
    return {"benchmark": "kernels", **machine.describe(), "cpu": "A <fast> & small CPU", **run}


def test_the_roofline_has_a_point_for_everybody_and_a_roof_for_each_type(record: dict[str, Any]) -> None:
    drawing = ElementTree.fromstring(roofline.picture(record))
    titles = [element.text or "" for element in drawing.iter() if element.tag.endswith("title")]
    assert "f32 1 x 8 -> 8, ours: 1 GFLOP/s, 50% of the roof" in titles
    assert sum("PyTorch: " in title for title in titles) == 2
    texts = [element.text for element in drawing.iter() if element.tag.endswith("text")]
    assert "peak avx512 bf16: 1000 GFLOP/s" in texts
    assert "memory: 30 GB/s" in texts


def test_kernels_have_a_chapter_before_attention_and_a_picture(
    record: dict[str, Any], tmp_path: Path
) -> None:
    files = []
    for benchmark, name in (("attention", "box"), ("kernels", "box-kernels")):
        files.append(tmp_path / f"{name}.json")
        rows = record["rows"] if benchmark == "kernels" else []
        files[-1].write_text(json.dumps({**record, "benchmark": benchmark, "rows": rows}))
    assert page.main([*map(str, files), "--docs", str(tmp_path / "page.md")]) == 0
    written = (tmp_path / "page.md").read_text()
    assert written.index("## Kernels\n") < written.index("### Kernels, box") < written.index("## Attention\n")
    assert "(benchmarks-box-kernels.svg)" in written
    assert ElementTree.parse(tmp_path / "benchmarks-box-kernels.svg")


def test_rates_stand_in_tables_where_tokens_are_counted(record: dict[str, Any]) -> None:
    record["rows"][0]["tokens"] = 1
    table = report.markdown(record)
    assert "1000 tok/s (once)" in table
    assert "| 50% |" in table
    assert report.rate_text(12345.6) == "12346 tok/s"
    assert report.rate_text(0.1234) == "0.123 tok/s"


def test_a_row_says_that_others_wanted_the_cores(record: dict[str, Any]) -> None:
    quiet, loud = (
        Samples(values).record() for values in ((0.0, 0.0, 0.0, 0.0, 3.0), (0.0, 0.0, 0.0, 1.0, 3.0))
    )
    for others, disturbed in ((quiet, False), (loud, True)):
        record["rows"][0]["ceilings"]["others running"] = others
        assert ("f32 1 x 8 -> 8 (disturbed)" in report.markdown(record)) == disturbed


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells who runs")
def test_a_busy_process_is_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        seen = []
        for _ in range(20):
            time.sleep(0.02)
            seen.append(machine.others_running() > 0)
        process.kill()
    assert sum(seen) > 10


# Command line


@pytest.mark.parametrize("suite", [kernels, layers])
def test_help_names_every_group_of_rows(suite: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["--help"])
    text = capsys.readouterr().out
    assert all(f"  {group}" in text and what in text for group, what in suite.GROUPS.items())


def test_each_number_of_threads_has_a_process_and_the_rows_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpus", lambda: 2)
    files = [tmp_path / name for name in ("record.json", "table.md", "roof.svg")]
    flags = "--rows rows --quick --repeats 1 --threads 1 2 --json {} --table {} --plot {}"
    assert kernels.main(flags.format(*files).split()) == 0
    record = json.loads(files[0].read_text())
    names = [case.name for case in row_cases() if case.quick]
    assert [(row["row"], row["threads"]) for row in record["rows"]] == [(n, t) for n in names for t in (1, 2)]
    assert "### rows" in files[1].read_text()
    assert ElementTree.parse(files[2]).getroot().tag.endswith("svg")
