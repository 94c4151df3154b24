"""`bench engine` on the embedded model, without its clock: rows, gates, contestants, targets and the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from benches import engine
from benches.cases.engine import (
    COPY,
    FREE_TEXT,
    GROUPS,
    LONG_PROMPT,
    LOOP_TEXT,
    PREFIX,
    Case,
    cases,
    is_quick,
)
from benches.cases.models import EMBEDDED, SMALL
from benches.contestants.engine.llama_batch import LlamaBatch
from benches.contestants.engine.service import CheckpointLLM, EngineService
from benches.contestants.shared_weights import write_gguf
from benches.contestants.worker import Worker, WorkerOptions
from benches.contestants.worker_pool import WorkerPool
from benches.harness import machine
from benches.harness.row import Entry, Row
from benches.names import (
    FIRST,
    FORMS,
    FREE,
    LLAMA_CPP,
    LOOP,
    NO_BUDGET,
    NO_DRAFT,
    NO_LOOKUP,
    ONE_STREAM,
    QUIET,
    TINY_LLM,
    WHOLE_STEP,
    Missing,
)
from benches.report.pages import machine_page
from benches.targets.engine import judge
from tiny_llm.loading import load
from tiny_llm_tools.benchmark.clock import Samples

CASE = Case("streams", "streams", EMBEDDED, 8, 6, 3, "float32")
CONTESTANTS = {
    "streams": [TINY_LLM, ONE_STREAM],
    "decode": [TINY_LLM, ONE_STREAM],
    "step": [TINY_LLM, WHOLE_STEP],
    "rate": [TINY_LLM, LOOP],
    "gap": [TINY_LLM, QUIET],
    "total": [TINY_LLM, NO_BUDGET],
    "prefix": [TINY_LLM, FIRST],
    "lookup": [TINY_LLM, NO_LOOKUP],
    "draft": [TINY_LLM, NO_DRAFT],
    "schema": [TINY_LLM, FREE],
}


@pytest.fixture(scope="module")
def service() -> Iterator[EngineService]:
    mx.set_default_device(mx.cpu)
    service = EngineService(CheckpointLLM(load(EMBEDDED), "float32"), 512)
    yield service
    service.close()


@pytest.fixture
def pool(service: EngineService, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    """Its worker of tiny_llm is a service in this process; llama.cpp is missing."""

    class Here:
        def call(self, method: str, **arguments: Any) -> Any:
            return json.loads(json.dumps(getattr(service, method)(**arguments)))

    def worker(self: WorkerPool, backend: str, *options: Any) -> Any:
        if backend != TINY_LLM:
            raise Missing("not installed")
        return Here()

    monkeypatch.setattr(WorkerPool, "worker", worker)
    with WorkerPool(module="benches.contestants.engine.worker") as pool:
        yield pool


def test_every_row_has_a_name_of_its_own_and_a_kind_with_contestants() -> None:
    found = [case for group in GROUPS for case in cases(group)]
    assert len({case.name for case in found}) == len(found)
    assert {case.kind for case in found} == set(CONTESTANTS)
    assert {case.model for case in found if is_quick(case)} == {EMBEDDED}


def test_prompts_are_what_the_rows_say() -> None:
    streams = Case("", "streams", SMALL, 128, 64, 8).prompts()
    assert [len(prompt) for prompt in streams] == [128] * 8
    assert len({tuple(prompt) for prompt in streams}) == 8
    running, incoming = Case("", "gap", SMALL, 32, 0, incoming=LONG_PROMPT).prompts()
    assert (len(running), len(incoming)) == (32, LONG_PROMPT)
    first, second = Case("", "prefix", SMALL, PREFIX, 8, incoming=16).prompts()
    assert first[:PREFIX] == second[:PREFIX]
    assert first != second
    assert len(first) == len(second) == PREFIX + 16


@pytest.mark.parametrize("kind", CONTESTANTS)
def test_every_kind_has_its_contestants_and_targets(pool: WorkerPool, kind: str) -> None:
    streams = 1 if kind in ("rate", "gap", "total", "lookup", "draft", "schema", "prefix") else 3
    case = replace(CASE, kind=kind, streams=streams, incoming=70, prompt=70 if kind == "prefix" else 8)
    row = engine.row_of(pool, case, 1, repeats=1)
    assert [entry.name for entry in row.entries if entry.name != LLAMA_CPP] == CONTESTANTS[kind]
    assert all(entry.error < 0.01 for entry in row.entries)  # float32
    assert all(entry.seconds and entry.seconds.median > 0 for entry in row.entries)
    others = [verdict for verdict in row.verdicts if LLAMA_CPP not in verdict.what]
    assert all(verdict.value is not None for verdict in others)


def test_the_gate_refuses_another_token(service: EngineService) -> None:
    prompts = CASE.prompts()
    tokens = service.answers(prompts, 6)["tokens"]
    assert service.error(prompts, tokens) < 0.01
    tokens[1][3] = (tokens[1][3] + 1) % 4096
    assert service.error(prompts, tokens) > engine.TOLERANCE_LLAMA_CPP


def test_a_story_is_told_again_by_drafts(pool: WorkerPool, service: EngineService) -> None:
    copy = next(case for case in cases("lookup") if case.text == COPY)
    row = engine.row_of(pool, replace(copy, dtype="float32", output=40), 1, repeats=1)
    assert row.details["accepted"] > 20
    record = {**machine.describe(), "groups": GROUPS, "repeats": 1, "isa": "amx", "rows": [row.record()]}
    counts = "{accepted} of {drafted} drafts were right".format(**row.details)
    assert engine.page(record).endswith(f"- {row.name}: {counts}")
    free = next(case for case in cases("lookup") if case.text == FREE_TEXT)
    assert engine.row_of(pool, replace(free, dtype="float32", output=40), 1, repeats=1).details == {}


def test_the_packed_weights_draft_for_the_same_weights_unpacked(pool: WorkerPool) -> None:
    """The same text: all drafts are right."""
    case = replace(next(cases("draft")), dtype="float32", output=40)
    row = engine.row_of(pool, case, 1, repeats=1)
    assert all(entry.error < 0.01 for entry in row.entries)
    assert 20 < row.details["accepted"] == row.details["drafted"]
    assert row.verdicts == []


def judged(
    kind: str, isa: str = "avx512bf16", text: str = "", model: str = SMALL, **times: float
) -> list[bool | None]:
    names = {"own": TINY_LLM, "llama": LLAMA_CPP, "one": ONE_STREAM, "loop": LOOP, "quiet": QUIET}
    names |= {"unbounded": NO_BUDGET, "first": FIRST, "off": NO_LOOKUP, "free": FREE}
    entries = [Entry(names[name], None, "", 0.0, Samples((time,)), 0.0, 0.0) for name, time in times.items()]
    case = replace(CASE, kind=kind, text=text, model=model)
    return [verdict.met for verdict in judge(case, Row("", "", 2, entries=entries), isa)]


def test_the_limits_of_the_targets() -> None:
    assert judged("streams", own=1.0, llama=1.21, one=2.21) == [True, True]
    assert judged("decode", own=1.0, llama=1.19, one=2.19) == [False, False]
    assert judged("streams", "amx", own=1.0, llama=1.21, one=3.51) == [True, True]
    assert judged("streams", "amx", own=1.0, one=3.49) == [None, False]
    assert judged("step", own=0.49e-3) == [True]
    assert judged("step", own=0.51e-3) == [False]
    assert judged("rate", own=1.0, loop=0.96) == [True]
    assert judged("rate", own=1.0, loop=0.94) == [False]
    assert judged("rate", model=EMBEDDED, own=1.0, loop=0.86) == [True]
    assert judged("rate", model=EMBEDDED, own=1.0, loop=0.84) == [False]
    assert judged("gap", own=2.99, quiet=1.0) == [True]
    assert judged("gap", own=3.01, quiet=1.0) == [False]
    assert judged("total", own=1.0, unbounded=0.86) == [True]
    assert judged("total", own=1.0, unbounded=0.84) == [False]
    assert judged("prefix", own=0.09, first=1.0) == [True]
    assert judged("prefix", own=0.11, first=1.0) == [False]
    assert judged("lookup", text=COPY, own=1.0, off=1.51) == [True]
    assert judged("lookup", text=LOOP_TEXT, own=1.0, off=1.49) == [False]
    assert judged("lookup", text=FREE_TEXT, own=1.0, off=0.98) == [True]
    assert judged("lookup", text=FREE_TEXT, own=1.0, off=0.96) == [False]
    assert judged("schema", own=1.0, free=0.91) == [True]
    assert judged("schema", own=1.0, free=0.89) == [False]


def test_a_record_becomes_a_section_that_names_the_instruction_set(pool: WorkerPool) -> None:
    row = engine.row_of(pool, replace(CASE, kind="rate", streams=1), 1, repeats=1)
    run = {"benchmark": "engine", "groups": GROUPS | {"streams": "some"}, "threads": [1], "repeats": 1}
    record = {**machine.describe(), **run, "isa": "avx512bf16", "rows": [row.record()]}
    text = machine_page("m", {"engine": record})
    assert "## The engine\n\nOur kernels use avx512bf16: without AMX." in text
    assert f"| {row.name}" in text
    assert "Targets: 1 met, 0 missed" in text or "Targets: 0 met, 1 missed" in text


def test_a_worker_process_answers_like_the_service(service: EngineService) -> None:
    options = WorkerOptions(TINY_LLM, EMBEDDED, "float32", 1, 512)
    worker = Worker(options, "benches.contestants.engine.worker")
    try:
        prompts = CASE.prompts()
        assert (
            worker.call("answers", prompts=prompts, output=6)["tokens"]
            == service.answers(prompts, 6)["tokens"]
        )
    finally:
        worker.close()


@pytest.mark.llama_cpp
@pytest.mark.parametrize("form", FORMS[LLAMA_CPP])
def test_llama_cpp_decodes_a_batch_as_the_model_does(
    form: str, service: EngineService, tmp_path: Path
) -> None:
    checkpoint = load(EMBEDDED)
    write_gguf(checkpoint.config, checkpoint.mlx_model, tmp_path / "tiny.gguf")
    prompts = CASE.prompts()
    found = LlamaBatch(str(tmp_path / "tiny.gguf"), 1, len(prompts), 16).answers(prompts, 6, form)
    assert service.error(prompts, found["tokens"]) < engine.TOLERANCE_LLAMA_CPP
    assert found["token"] > 0
    assert found["decoded"] > 0
