"""`bench kernels` and `bench layers`: gate, rows, targets, processes and the picture."""

from __future__ import annotations

import json
import re
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

from benches import engine, kernels, layers
from benches.cases.arrays import exact, random_array, sampled
from benches.cases.layers import LAYERS, layer_cases
from benches.cases.products import SHAPES, dense_cases, packed_cases
from benches.cases.rows import row_cases
from benches.harness import machine
from benches.harness.contestant import Case, Contestant, Operation, evaluated, own
from benches.harness.gate import Gate
from benches.harness.measure import measure
from benches.harness.row import Entry, Row
from benches.names import MLX, PYTORCH, TINY_LLM
from benches.report import pages, tables
from benches.report.roofline import roofline
from tiny_llm_tools.benchmark.clock import Samples


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def doubling(repetitions: int = 1, **others: Any) -> Operation:
    """Twice a matrix, by tiny_llm and by the contestants named."""
    x = random_array((40, 30), "float32", 0)
    contestants = [own(evaluated(lambda: x + x, repetitions))]
    contestants += [Contestant(name, evaluated(partial(build, x))) for name, build in others.items()]
    sample = sampled(40, 30, most_rows=4)
    gate = Gate((40, 30), *sample, 2 * exact(x)[np.ix_(*sample)], 1e-4)
    return Operation("float32", 40 * 30, 2 * x.nbytes, gate, contestants, repetitions)


def row_of(case: Case, repeats: int = 1) -> Row:
    return measure(case, 1, repeats)[0]


# Gate


def test_right_results_are_timed_and_compared_with_the_roofline() -> None:
    row = row_of(Case("rows", "double", lambda threads: doubling(mlx=lambda x: 2 * x)), repeats=2)
    assert [entry.name for entry in row.entries] == [TINY_LLM, "mlx"]
    assert all(entry.seconds and entry.share_of_peak for entry in row.entries)
    assert {name.split()[0] for name in row.ceilings} == {"peak", "bandwidth", "others"}


def test_seconds_are_those_of_one_repetition() -> None:
    """One of eight calls waits, so each of the eight takes an eighth of that."""
    wait, repetitions, built = 0.08, 8, []

    def operation(threads: int) -> Operation:
        several = doubling(repetitions)
        double = several.contestants[0].call

        def build() -> mx.array:
            if len(built) % repetitions == 0:
                time.sleep(wait)
            built.append(threads)
            return double()

        several.contestants[0] = own(evaluated(build, repetitions))
        return several

    (entry,) = row_of(Case("rows", "double", operation), repeats=2).entries
    assert len(built) % repetitions == 0
    assert entry.seconds is not None
    assert wait / repetitions <= entry.seconds.median < wait


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
        row = row_of(Case("rows", name, partial(lambda made, threads: made, operation)))
        assert [entry.seconds is not None for entry in row.entries] == [True, False], name


def test_a_sample_has_both_ends_and_the_requested_number() -> None:
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
    row = row_of(case)
    assert [entry.seconds is not None for entry in row.entries] == [True, True]
    rows = int(name.split()[4])
    assert row.flops == 2 * rows * 4864 * 896
    bits = int(name.split()[1])
    assert row.bytes == 4864 * 896 * (bits + 0.5) / 8 + 2 * rows * (896 + 4864)


def test_dense_products_pass_their_gate() -> None:
    for dtype in ("f32", "bf16"):
        case = next(case for case in dense_cases() if case.name == f"{dtype} 0.5b 1 x 896 -> 896")
        row = row_of(case)
        assert all(entry.seconds for entry in row.entries)
        assert MLX in [entry.name for entry in row.entries]
        assert row.entries[0].name == TINY_LLM


def test_products_are_those_of_the_models() -> None:
    from tiny_llm.loading.weights.random_model import SIZES

    for model, shapes in SHAPES.items():
        hidden, inner, *_ = SIZES[f"qwen2-{model}"]
        assert shapes == ((hidden, hidden), (inner, hidden), (hidden, inner))


def test_row_kernels_pass_their_gate() -> None:
    for case in row_cases():
        if case.name.endswith(" 1 row"):
            assert all(entry.seconds for entry in row_of(case).entries), case.name


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_agree_with_mlx_operations(layer: str) -> None:
    case = next(case for case in layer_cases("decode") if case.name == f"f32 {layer}, 1 token")
    row = row_of(case, repeats=2)
    assert [entry.name for entry in row.entries if entry.seconds] == [TINY_LLM, "mlx f32"]


# Targets


def entry(name: str, seconds: float, floor: float = 0.0) -> Entry:
    return Entry(name, None, "", 0.0, Samples((seconds,)), 1e6, floor)


def verdicts(*entries: Entry) -> dict[str, bool | None]:
    row = Row("linear", "f32 x", 2, entries=list(entries))
    return {verdict.what: verdict.met for verdict in kernels.judge(row)}


def test_the_target_of_a_dense_product_is_pytorch_or_the_roofline() -> None:
    assert verdicts(entry(TINY_LLM, 1.0, 0.1), entry(PYTORCH, 1.1)) == {"speed over PyTorch": True}
    assert verdicts(entry(TINY_LLM, 1.0, 0.85), entry(PYTORCH, 1.0)) == {"share of the roofline": True}
    assert verdicts(entry(TINY_LLM, 1.0, 0.84), entry(PYTORCH, 1.0)) == {"speed over PyTorch": False}
    assert verdicts(entry(TINY_LLM, 1.0, 0.84)) == {"speed over PyTorch": None}
    assert verdicts(entry(PYTORCH, 1.0)) == {"speed over PyTorch": None}


# Reports


@pytest.fixture
def record() -> dict[str, Any]:
    rows = []
    for name, flops, nbytes in (("f32 1 x 8 -> 8", 1e6, 10**8), ("bf16 512 x 8 -> 8", 1e9, 10**6)):
        row = Row("linear", name, 2, flops=flops, bytes=nbytes)
        row.entries = [replace(entry(name, 1e-3, 5e-4), flops=flops) for name in (TINY_LLM, PYTORCH)]
        row.ceilings = {"peak avx512": Samples((1e12,)), "bandwidth": Samples((3e10,))}
        rows.append(row.record())
    run = {"groups": kernels.GROUPS, "threads": [1, 2], "repeats": 3, "rows": rows}
    return {"benchmark": "kernels", **machine.describe(), "cpu": "A <fast> & small CPU", **run}


def test_the_roofline_has_the_limits_of_the_machine_and_equal_records_give_equal_pictures(
    record: dict[str, Any],
) -> None:
    picture = roofline(record)
    assert picture == roofline(record)
    drawing = ElementTree.fromstring(picture)
    texts = [element.text for element in drawing.iter() if element.tag.endswith("text")]
    assert "peak avx512 bf16: 1000 GFLOP/s" in texts
    assert "memory: 30 GB/s" in texts
    assert {"linear", "MLX, PyTorch"} <= set(texts)


def test_every_record_of_a_machine_has_a_section_and_a_picture(
    record: dict[str, Any], tmp_path: Path
) -> None:
    folder, docs = tmp_path / "results" / "box", tmp_path / "docs"
    folder.mkdir(parents=True)
    docs.mkdir()
    for name, rows in (("attention", []), ("kernels", record["rows"])):
        (folder / f"{name}.json").write_text(json.dumps({**record, "benchmark": name, "rows": rows}))
    assert pages.main(["--results", str(folder.parent), "--docs", str(docs)]) == 0
    written = (docs / "benchmarks" / "box.md").read_text()
    assert written.index("## Quantized products") < written.index("## Attention\n")
    assert "(box-kernels.svg)" in written
    assert ElementTree.parse(docs / "benchmarks" / "box-kernels.svg")


def test_rows_with_tokens_show_rates(record: dict[str, Any]) -> None:
    record["rows"][0]["tokens"] = 1
    table = tables.markdown(record)
    assert "1000 tok/s (once)" in table
    assert "| 50% |" in table
    assert tables.rate_text(12345.6) == "12346 tok/s"
    assert tables.rate_text(0.1234) == "0.123 tok/s"


def test_a_row_is_marked_if_others_used_the_cores(record: dict[str, Any]) -> None:
    quiet, loud = (
        Samples(values).record() for values in ((0.0, 0.0, 0.0, 0.0, 3.0), (0.0, 0.0, 0.0, 1.0, 3.0))
    )
    for others, disturbed in ((quiet, False), (loud, True)):
        record["rows"][0]["ceilings"]["others running"] = others
        assert ("f32 1 x 8 -> 8 (disturbed)" in tables.markdown(record)) == disturbed


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux counts running threads")
def test_a_busy_process_is_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        seen = []
        for _ in range(20):
            time.sleep(0.02)
            seen.append(machine.others_running() > 0)
        process.kill()
    assert sum(seen) > 10


# Command line


@pytest.mark.parametrize("suite", [engine, kernels, layers])
def test_help_names_every_group_of_rows(suite: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["--help"])
    text = capsys.readouterr().out
    for group, what in suite.GROUPS.items():
        assert re.search(rf"^  {group} +{re.escape(what)}$", text, re.M)


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
