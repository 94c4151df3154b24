"""`bench`: what is counted, compared, written and drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mlx.core as mx
import pytest

from tiny_llm.cli.exit_codes import FAILED, INTERRUPTED
from tiny_llm.cli.loaders import LOADERS
from tiny_llm.cli.output_files import write_whole
from tiny_llm_tools.benchmark.backends import BenchBackend
from tiny_llm_tools.benchmark.pictures import rates_picture
from tiny_llm_tools.benchmark.rates import Run as Timed
from tiny_llm_tools.benchmark.rates import measure
from tiny_llm_tools.benchmark.report import ratio, totals
from tiny_llm_tools.benchmark.requests import BenchRequest, Sizes, random_requests
from tiny_llm_tools.cli import bench

from .conftest import Run

FEW = "--num-seqs 2 --min-input-len 5 --max-input-len 9 --min-output-len 2 --max-output-len 4".split()
SIZES = Sizes(50, 5, 9, 2, 4)


@pytest.fixture
def measured(run: Run, tmp_path: Path) -> Any:
    """Run the benchmark on the embedded model and return its record."""

    def call(*flags: str) -> Any:
        file = tmp_path / "record.json"
        ended = run("bench", "--model", "tiny", *FEW, "--json", str(file), *flags)
        assert ended.code == 0, ended.err
        return json.loads(file.read_text()) | {"printed": ended.out}

    return call


def test_the_record_and_the_table_describe_the_run(measured: Any) -> None:
    record = measured()
    (only,) = record["contestants"]
    assert only["requests"] == 2
    assert only["prompt_tokens"] == sum(run["prompt_tokens"] for run in only["runs"])
    assert 4 <= only["output_tokens"] <= 8
    assert record["sizes"] == asdict(Sizes(2, 5, 9, 2, 4))
    assert (record["seed"], record["warmup"]) == (0, 1)
    assert record["installation"]["mlx"]["version"] == mx.__version__
    for column in ("wall time s", "output tok/s", "total tok/s", "prefill tok/s", "decode tok/s"):
        assert column in record["printed"]
    assert f"2 requests, {only['prompt_tokens']} prompt tokens" in record["printed"]


def test_compare_measures_with_and_without_flash_attention(measured: Any, tmp_path: Path) -> None:
    record = measured("--compare", "--plot", str(tmp_path / "rates.svg"))
    names = [each["name"] for each in record["contestants"]]
    assert names == ["flash attention", "grouped attention"]
    assert record["model"] == "tiny"
    assert record["printed"].startswith("tiny, ")
    (compared,) = record["ratios"]
    assert (compared["of"], compared["to"]) == tuple(names)
    assert compared["prefill"] > 0
    assert compared["decode"] > 0
    assert "flash attention against grouped attention" in record["printed"]
    picture = (tmp_path / "rates.svg").read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert all(name in picture for name in names)


def test_equal_records_give_equal_pictures(measured: Any) -> None:
    record = measured("--compare")
    assert rates_picture(record) == rates_picture(record)


def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(bench, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    ended = run("bench", "--model", "tiny", *FEW, "--plot", str(tmp_path / "rates.svg"))
    assert (ended.code, ended.out) == (FAILED, "")
    assert ended.err.count("\n") == 1
    assert "--plot: pictures need matplotlib: pip install 'tiny-llm[tools]'" in ended.err


@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_can_be_measured(measured: Any, loader: str) -> None:
    record = measured("--loader", loader)
    assert record["loader"] == loader
    assert loader in record["printed"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [((), "flash attention"), (("--enable-flash-attn",), "flash attention"),
     (("--no-enable-flash-attn",), "grouped attention")],
)  # fmt: skip
def test_the_flash_flag_chooses_the_attention(measured: Any, flags: tuple[str, ...], name: str) -> None:
    assert [each["name"] for each in measured(*flags)["contestants"]] == [name]


def test_backends_that_do_not_agree_are_not_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    build = bench.build_stage

    def build_a_wrong_one(checkpoint: Any, loader: Any, flash: bool, dtype: mx.Dtype) -> Any:
        model = build(checkpoint, loader, flash, dtype)
        if not flash:
            model.layers_inner = model.layers_inner[1:]
            model.num_hidden_layers -= 1
        return model

    monkeypatch.setattr(bench, "build_stage", build_a_wrong_one)
    ended = run("bench", "--model", "tiny", *FEW, "--compare")
    assert (ended.code, ended.out) == (FAILED, "")
    assert "do not agree" in ended.err


def test_without_its_default_model_random_weights_are_measured_with_a_notice(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    loaded = []
    monkeypatch.setattr(bench, "load", lambda name, **_: loaded.append(name) or load_tiny())
    ended = run("bench", *FEW)
    assert ended.code == 0
    assert loaded == ["random:qwen2-0.5b"]
    assert "qwen2-0.5b is not on this machine" in ended.err
    assert "--model qwen2-0.5b downloads it" in ended.err


def load_tiny() -> Any:
    from tiny_llm.loading import load

    return load("tiny")


def test_seed_and_warmup_have_an_effect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(bench, "measure", lambda *given: seen.append(given) or measure(*given))
    for flags in (("--warmup", "0"), ("--warmup", "2"), ("--seed", "7")):
        assert run("bench", "--model", "tiny", *FEW, *flags).code == 0
    assert [warmup for _, _, warmup, _ in seen] == [0, 2, 1]
    assert seen[0][1] == seen[1][1] != seen[2][1]


def test_the_record_has_flash_attention_unless_both_are_measured(measured: Any) -> None:
    flags = {(): True, ("--no-enable-flash-attn",): False, ("--compare",): None}
    assert {given: measured(*given)["flash_attention"] for given in flags} == flags


def test_a_run_that_is_stopped_keeps_the_files_of_the_last_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    files = [tmp_path / "record.json", tmp_path / "rates.svg"]
    for file in files:
        file.write_text("old")
    monkeypatch.setattr(bench, "measure", stop)
    ended = run("bench", "--model", "tiny", *FEW, "--json", str(files[0]), "--plot", str(files[1]))
    assert ended.code == INTERRUPTED
    assert {file: file.read_text() for file in tmp_path.iterdir()} == dict.fromkeys(files, "old")


def test_a_file_is_complete_or_the_old_one_and_an_error_names_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "new \udcff")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    link = tmp_path / "link"
    link.symlink_to(file)
    write_whole(link, "new")
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    with pytest.raises(OSError, match="gone") as error:
        write_whole(tmp_path / "gone" / "file", "new")
    assert error.value.filename == str(tmp_path / "gone" / "file")


# The workload


def test_requests_follow_from_the_seed_and_keep_their_limits() -> None:
    requests = random_requests(SIZES, vocabulary=1000, end_tokens={300, 301}, seed=1)
    assert requests == random_requests(SIZES, vocabulary=1000, end_tokens={300, 301}, seed=1)
    assert requests != random_requests(SIZES, vocabulary=1000, end_tokens={300, 301}, seed=2)
    assert {len(request.prompt) for request in requests} == set(range(5, 10))
    assert {request.output_tokens for request in requests} == {2, 3, 4}


@pytest.mark.parametrize(("vocabulary", "expected"), [(600, range(256, 600)), (512, range(512))])
def test_random_tokens_are_neither_bytes_nor_end_tokens(vocabulary: int, expected: range) -> None:
    many = Sizes(1, 20000, 20000, 1, 1)
    (request,) = random_requests(many, vocabulary, end_tokens={500}, seed=0)
    assert set(request.prompt) == set(expected) - {500}


class FakeClock:
    """Backends with known durations, and the order in which they ran."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def backend(self, name: str, first: float, later: float) -> BenchBackend:
        """`first` seconds for the first token, `later` seconds for each other one."""

        def generate(request: BenchRequest) -> Iterator[int]:
            self.order.append(name)
            for token in range(request.output_tokens):
                self.now += later if token else first
                yield token

        return BenchBackend(name, generate, lambda request: mx.zeros(1))


def test_backends_take_turns_and_warm_up_is_not_counted() -> None:
    fake = FakeClock()
    both = [fake.backend("a", 2.0, 1.0), fake.backend("b", 4.0, 3.0)]
    requests = [BenchRequest((1, 2), 3), BenchRequest((1, 2, 3, 4), 2)]
    reports: list[tuple[int, int]] = []
    runs = measure(both, requests, 1, lambda *report: reports.append(report), clock=lambda: fake.now)
    assert fake.order == ["a", "b", "b", "a", "a", "b"]
    assert reports == [(i, 6) for i in range(6)]
    assert runs["a"] == [Timed(2, 3, 2.0, 4.0), Timed(4, 2, 2.0, 3.0)]
    assert [run.prefill_rate for run in runs["a"]] == [1.0, 2.0]
    assert [run.decode_rate for run in runs["b"]] == [1 / 3, 1 / 3]
    assert totals(runs["a"]) == {
        "requests": 2,
        "prompt_tokens": 6,
        "output_tokens": 5,
        "wall_seconds": 7.0,
        "output_tokens_per_second": 5 / 7,
        "total_tokens_per_second": 11 / 7,
        "prefill_tokens_per_second": 6 / 4,
        "decode_tokens_per_second": 3 / 3,
    }
    assert ratio(runs["a"], runs["b"]) == {"prefill": 2.0, "decode": 3.0, "whole": (10 / 4 + 7 / 3) / 2}


def test_one_token_has_no_decode_rate() -> None:
    single = [Timed(4, 1, 2.0, 2.0)]
    assert totals(single)["decode_tokens_per_second"] is None
    assert ratio(single, single)["decode"] is None
