"""`bench serving` on the embedded model: every group of rows, with its gate, targets, files and table."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from benches import serving
from benches.cases.models import EMBEDDED
from benches.cases.serving import GROUPS, Case, cases, is_quick
from benches.contestants.gguf import ARRAY, INT32, STRING, write
from benches.contestants.http import in_process, servers
from benches.contestants.http.clients import Outcome
from benches.contestants.http.load import Prompts, RequestFailed, check_lengths
from benches.contestants.http.model_files import tokenizer_metadata, write_folder
from benches.contestants.http.servers import ModelFiles
from benches.harness import machine
from benches.harness.row import Entry, Row
from benches.names import (
    FIRST,
    LLAMA_CPP,
    LOOP,
    MLX_LM,
    NO_BUDGET,
    QUIET,
    TINY_LLM,
)
from benches.report.pages import machine_page
from benches.serving import row_of
from benches.targets.serving import budget_verdict, clients_verdicts, judge
from tiny_llm import LLM
from tiny_llm.loading import load, load_tokenizer
from tiny_llm_tools.benchmark.clock import Samples
from tiny_llm_tools.benchmark.serving.answer import Answer

CASES = {
    "streams": Case("streams", EMBEDDED, 8, 3, 2, (LLAMA_CPP, MLX_LM)),
    "http": Case("http", EMBEDDED, 20, 40, of_process=0.60),
    "prefix": Case("prefix", EMBEDDED, 800, 2),
    "gap": Case("gap", EMBEDDED, 600, 400),
    "clients": Case("clients", EMBEDDED, 20, 8, 8),
}


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


@pytest.fixture
def files() -> Iterator[ModelFiles]:
    found = ModelFiles()
    yield found
    found.close()


def measured(case: Case, files: ModelFiles) -> Row:
    return row_of(case, files, threads=2, repeats=2, seconds=1.0)


def test_the_rows_have_distinct_names_and_every_group() -> None:
    found = [case for group in GROUPS for case in cases(group)]
    assert {case.group for case in found} == set(GROUPS) == set(CASES)
    assert len({case.name for case in found}) == len(found)
    assert [case.group for case in found if is_quick(case)] == ["http", "clients"]
    assert {peer for case in found for peer in case.peers} == {LLAMA_CPP, MLX_LM}


def test_a_peer_that_is_absent_is_listed_and_others_are_measured(
    files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(servers.NEEDED, LLAMA_CPP, (("no_such_module",), "llama-cpp-python[server]"))
    row = measured(CASES["streams"], files)
    reason = "no_such_module is not installed: pip install 'llama-cpp-python[server]'"
    assert row.missing == {LLAMA_CPP: reason}
    assert [entry.name for entry in row.entries] == [TINY_LLM, MLX_LM]
    assert all(len(entry.seconds.values) == 2 for entry in row.entries)
    ours, other = (row.details["figures"][name] for name in (TINY_LLM, MLX_LM))
    assert (ours["completed"], ours["total_input_tokens"], ours["total_output_tokens"]) == (4, 32, 12)
    assert (other["completed"], other["total_input_tokens"]) == (4, 32)


@pytest.mark.parametrize(("has_usage", "events"), [(True, 9), (False, 5)])
def test_an_answer_that_is_too_short_is_not_timed(has_usage: bool, events: int) -> None:
    whole = Answer(3, 0.0, output_tokens=6, has_usage=True)
    short = Answer(3, 0.0, output_tokens=5, has_usage=has_usage, events=events)
    check_lengths([whole, Answer(3, 0.0, output_tokens=2, events=6)], 6)
    with pytest.raises(RequestFailed, match="an answer ended after 5 of 6 tokens"):
        check_lengths([whole, short], 6)


def test_one_stream_over_http_and_in_process(files: ModelFiles) -> None:
    row = measured(CASES["http"], files)
    assert [entry.name for entry in row.entries] == [TINY_LLM, LOOP]
    (verdict,) = row.verdicts
    assert verdict.value == row.seconds(LOOP) / row.seconds(TINY_LLM)


def test_a_second_request_finds_the_prefix(files: ModelFiles) -> None:
    row = measured(CASES["prefix"], files)
    assert row.seconds(TINY_LLM) < row.seconds(FIRST)
    assert [verdict.what for verdict in row.verdicts] == ["time of the first request"]


def test_gaps_with_and_without_a_prompt_and_a_budget(files: ModelFiles) -> None:
    row = measured(CASES["gap"], files)
    assert [entry.name for entry in row.entries] == [TINY_LLM, QUIET, NO_BUDGET]
    assert all(verdict.value is not None for verdict in row.verdicts)
    assert len(row.verdicts) == 2


def test_clients_that_leave_or_send_nonsense_cost_nobody_an_answer(files: ModelFiles) -> None:
    row = measured(CASES["clients"], files)
    assert row.details["wrong"] == []
    assert sum(row.details["ended"].values()) > 8
    values = {verdict.what: verdict.value for verdict in row.verdicts}
    assert values["wrong or lost answers"] == values["pages in use at rest"] == 0
    record = {**machine.describe(), "benchmark": "serving", "groups": GROUPS, "rows": [row.record()]}
    page = machine_page("here", {"serving": json.loads(json.dumps({**record, "repeats": 2}))})
    assert "| tiny 8 clients | 2 | ours |" in page


def test_a_server_with_wrong_answers_is_not_timed(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    text_of = in_process.text_of
    monkeypatch.setattr(in_process, "text_of", lambda *given: text_of(*given) + "!")
    row = measured(replace(CASES["streams"], peers=()), files)
    assert [(entry.name, entry.seconds, entry.error) for entry in row.entries] == [(TINY_LLM, None, 1.0)]


def test_several_numbers_of_threads_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        serving.main(["--threads", "1", "1"])
    assert end.value.code == 2
    assert "--threads: got several numbers, expected one for a run" in capsys.readouterr().err


# Targets


def verdicts(case: Case, **seconds: float) -> list[bool | None]:
    names = {"ours": TINY_LLM, "process": LOOP, "first": FIRST, "alone": QUIET}
    samples = {names[name]: Samples((time,)) for name, time in seconds.items()}
    entries = [Entry(name, None, "", 0.0, times, 0.0, 0.0) for name, times in samples.items()]
    return [verdict.met for verdict in judge(case, Row(case.group, case.name, 2, entries=entries))]


def test_targets() -> None:
    small, tiny = cases("http")
    assert verdicts(small, ours=1.0, process=0.9) == [True]
    assert verdicts(small, ours=1.0, process=0.89) == [False]
    assert verdicts(tiny, ours=1.0, process=0.6) == [True]
    assert verdicts(tiny, ours=1.0) == [None]
    assert verdicts(CASES["prefix"], ours=0.1, first=1.0) == [True]
    assert verdicts(CASES["prefix"], ours=0.11, first=1.0) == [False]
    assert verdicts(CASES["gap"], ours=3.0, alone=1.0) == [True]
    assert verdicts(CASES["gap"], ours=3.1, alone=1.0) == [False]
    assert verdicts(CASES["streams"], ours=1.0) == []
    assert budget_verdict(Samples((1.0,)), Samples((0.85,))).met is True
    assert budget_verdict(Samples((1.0,)), Samples((0.84,))).met is False


def test_targets_of_clients() -> None:
    answers = [Answer(1, 0.0, [1.0], 1.0, 1, True, None) for _ in range(10)]
    good = Outcome(answers, {"good": 10, "bad": 90}, [], 10.0, 0.0, (100, 100))
    assert [verdict.met for verdict in clients_verdicts(good, 1)] == [True, True, True, True]
    assert [verdict.limit for verdict in clients_verdicts(good, 4)][-1] == 8.0  # 2 x 4 requests at 1 a second
    bad = replace(good, wrong=["x"], pages_at_rest=0.1, memory=(0, 2**26), seconds=4.0)
    assert [verdict.met for verdict in clients_verdicts(bad, 1)] == [False, False, False, False]
    left = replace(good, pages_at_rest=None, memory=None)
    assert [verdict.met for verdict in clients_verdicts(left, 1)] == [True, None, None, True]


# Files


def test_a_folder_is_the_same_model(tmp_path: Path) -> None:
    write_folder(load(EMBEDDED), tmp_path / "copy", mx.float32)
    prompt = Prompts().requests(1, 12, 8)[0].prompt
    texts = [LLM(name, dtype="float32").generate(prompt).text for name in (EMBEDDED, tmp_path / "copy")]
    assert texts[0] == texts[1]
    assert mx.load(str(tmp_path / "copy" / "model.safetensors"))["model.norm.weight"].dtype == mx.float32


def test_the_tokenizer_of_a_gguf_file_has_a_name_for_every_id(tmp_path: Path) -> None:
    tokenizer = load_tokenizer("tiny")
    values = tokenizer_metadata(tokenizer, 5000)
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    assert (len(tokens), len(types), len(set(tokens))) == (5000, 5000, 5000)
    assert [tokens[number] for number in (0, 4999)] == ["<|endoftext|>", "[UNUSED4999]"]
    assert [types[number] for number in (0, 300, 4999)] == [3, 1, 5]
    assert all(" " in merge for merge in values["tokenizer.ggml.merges"])


def test_arrays_in_a_gguf_file(tmp_path: Path) -> None:
    write(tmp_path / "x.gguf", {"a": ["b", "cd"], "e": [7, 8]}, [])
    data = (tmp_path / "x.gguf").read_bytes()
    texts = struct.pack("<IIQ", ARRAY, STRING, 2) + struct.pack("<Q", 1) + b"b" + struct.pack("<Q", 2) + b"cd"
    numbers = struct.pack("<IIQii", ARRAY, INT32, 2, 7, 8)
    assert texts in data
    assert numbers in data
