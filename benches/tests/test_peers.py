"""`bench peers` without its clock: worker processes, work and targets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from benches.cases.models import EMBEDDED, GROUPS, SMALL, Case, cases, work
from benches.contestants.footprint import footprint
from benches.contestants.models import tiny_llm
from benches.contestants.worker import Worker, WorkerOptions
from benches.contestants.worker_pool import WorkerPool
from benches.harness import machine
from benches.harness.row import Entry, Row, speedup
from benches.names import BATCH, FLASH, LLAMA_CPP, MLX_LM, NO_FLASH, OPENVINO, STEP, TINY_LLM, Missing
from benches.peers import rows_of
from benches.report.tables import markdown
from benches.targets.models import judge, memory_verdict
from tiny_llm.loading import load
from tiny_llm_tools.benchmark.clock import Samples
from tiny_llm_tools.benchmark.requests import BenchRequest

OPTIONS = WorkerOptions(TINY_LLM, EMBEDDED, "float32", 1, 512)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


# Processes


@pytest.fixture
def worker() -> Iterator[Worker]:
    opened = Worker(OPTIONS)
    yield opened
    opened.close()


def test_a_worker_gives_logits_and_seconds(worker: Worker) -> None:
    logits = worker.call("logits", name=TINY_LLM, prompt=7)
    for name in (TINY_LLM, STEP, BATCH):
        np.testing.assert_allclose(worker.call("logits", name=name, prompt=7), logits, atol=1e-3)
        assert worker.call("prefill", name=name, prompt=7) > 0
        worker.call("start_decoding", name=name, prompt=7)
        assert worker.call("decode", name=name, tokens=2) > 0
    assert load(EMBEDDED).nbytes < worker.call("weights") < 2 * load(EMBEDDED).nbytes  # wider scales
    for _ in range(3):  # longer than the context: decoding restarts
        assert worker.call("decode", name=TINY_LLM, tokens=250) > 0
    with pytest.raises(RuntimeError, match="KeyError: 'unknown'"):
        worker.call("logits", name="unknown", prompt=7)
    assert logits == worker.call("logits", name=TINY_LLM, prompt=7)


def test_a_busy_worker_is_ended() -> None:
    opened = Worker(OPTIONS)
    opened.call("start_decoding", name=TINY_LLM, prompt=5)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(opened.call, "decode", name=TINY_LLM, tokens=10**6)
        time.sleep(0.1)
        opened.close()
        with pytest.raises(RuntimeError, match="ended with code"):
            running.result()


def test_all_forms_of_tiny_llm_give_the_same_tokens() -> None:
    forms = tiny_llm(load(EMBEDDED), mx.float32, 512)
    request = BenchRequest(tuple(range(300, 320)), 5)
    expected = list(forms[TINY_LLM].generate(request))
    assert list(forms[BATCH].generate(request)) == expected
    assert list(forms[STEP].generate(request)) == expected


@pytest.mark.parametrize(
    ("peer", "module", "sentence"),
    [
        (
            LLAMA_CPP,
            "llama_cpp",
            "llama-cpp-python is not installed: docs/benchmarks/method.md says how to build it",
        ),
        (OPENVINO, "openvino", 'OpenVINO is not installed: pip install ".[openvino]"'),
    ],
)
def test_a_missing_peer_is_listed_and_the_others_are_timed(
    peer: str, module: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    file = str(tmp_path / f"{module}.py")
    with pytest.raises(Missing) as missing:
        Worker(replace(OPTIONS, backend=peer, file=file))
    assert str(missing.value) == sentence
    case = Case("decode", "decode", EMBEDDED, "float32", 5, 2, (peer,))
    with WorkerPool() as pool:
        monkeypatch.setattr(pool, "_gguf_file", lambda model: file)
        (row,) = rows_of(pool, case, [1], repeats=1)
    assert row.missing == {peer: sentence}
    assert [(e.name, e.seconds is not None) for e in row.entries] == [(TINY_LLM, True), (STEP, True)]


def test_a_contestant_with_wrong_logits_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("batch", "batch", EMBEDDED, "float32", 5, 2)
    call = Worker.call

    def wrong(self: Worker, method: str, **arguments: Any) -> Any:
        result = call(self, method, **arguments)
        return result[::-1] if method == "logits" and arguments["name"] == BATCH else result

    monkeypatch.setattr(Worker, "call", wrong)
    with WorkerPool() as pool:
        (row,) = rows_of(pool, case, [1], repeats=1)
    assert [entry.seconds is not None for entry in row.entries] == [True, False]


def test_a_process_holds_its_weights_and_little_more() -> None:
    weights, peak = footprint(EMBEDDED, "bfloat16", 64, threads=1)
    assert 0 < weights < peak < weights + 200e6


# Work and targets


def test_every_group_has_distinct_rows() -> None:
    names = [case.name for group in GROUPS for case in cases(group) if case.group == group]
    assert len(set(names)) == len(names)
    assert {case.group for group in GROUPS for case in cases(group)} == set(GROUPS)


def test_a_decode_step_reads_all_weights_and_its_cache_and_a_batch_shares_the_weights() -> None:
    case = Case("decode", "decode", SMALL, "bfloat16", 100)
    cache = 24 * 2 * 2 * 64 * 100 * 2
    assert work(case, 1000) == (0.0, 1000 + cache)
    assert work(replace(case, kind="batch"), 8000) == (0.0, 1000 + cache)
    assert work(replace(case, dtype="float32"), 0) == (0.0, 2 * cache)


def test_a_prefill_multiplies_every_weight_once_a_token() -> None:
    flops, read = work(Case("prefill", "prefill", SMALL, "bfloat16", 2), 7)
    layer = 896 * 896 * 2 + 896 * 128 * 2 + 3 * 896 * 4864
    pairs = 3  # the first token sees itself, the second both
    assert flops == 24 * (2 * layer * 2 + 4 * 896 * pairs) + 2 * 896 * 151936
    assert read == 7


def entry(name: str, seconds: float, floor: float = 0.0) -> Entry:
    return Entry(name, None, "", 0.0, Samples((seconds,)), 1.0, floor)


def met(case: Case, *entries: Entry) -> dict[str, bool | None]:
    row = Row(case.group, case.name, 2, entries=list(entries))
    return {verdict.what: verdict.met for verdict in judge(case, row)}


def test_targets_against_the_peers() -> None:
    decode = Case("decode", "decode", SMALL, "bfloat16", 128, peers=(LLAMA_CPP,))
    assert met(decode, entry(TINY_LLM, 1.0, 0.7), entry(LLAMA_CPP, 0.99)) == {
        "speed over llama.cpp": False,
        "share of the read bandwidth": True,
    }
    beyond = met(decode, entry(TINY_LLM, 1.0, 1.06), entry(LLAMA_CPP, 0.99))
    assert beyond["share of the read bandwidth"] is None  # the bandwidth was measured too low
    prefill = replace(decode, group="prefill", kind="prefill", prompt=512)
    assert met(prefill, entry(TINY_LLM, 0.511), entry(LLAMA_CPP, 1.6)) == {
        "speed over llama.cpp": True,
        "rate": True,
    }
    assert met(prefill, entry(TINY_LLM, 0.513)) == {"speed over llama.cpp": None, "rate": False}
    slow = replace(decode, peers=(MLX_LM,))
    assert met(slow, entry(TINY_LLM, 1.0), entry(MLX_LM, 20.0)) == {"speed over mlx-lm": True}
    assert met(replace(slow, kind="prefill"), entry(TINY_LLM, 1.0), entry(MLX_LM, 199.0)) == {
        "speed over mlx-lm": False
    }


def test_the_faster_form_of_a_peer_counts_and_the_record_keeps_both() -> None:
    row = Row("decode", "decode", 2)
    row.add_entries([entry(TINY_LLM, 1.0), entry(FLASH, 2.0), entry(NO_FLASH, 1.5), entry(OPENVINO, 3.0)])
    assert [(e.name, e.variant) for e in row.entries] == [
        (TINY_LLM, ""), (OPENVINO, ""), (LLAMA_CPP, NO_FLASH)
    ]  # fmt: skip
    assert speedup(row, LLAMA_CPP, 1.0).value == 1.5
    forms = row.record()["forms"][LLAMA_CPP]
    assert {form["name"]: form["seconds"]["median"] for form in forms} == {FLASH: 2.0, NO_FLASH: 1.5}
    assert "667 tok/s with no flash attention" in markdown_of(row)


def test_a_form_with_wrong_logits_does_not_count() -> None:
    row = Row("decode", "decode", 2)
    wrong = Entry(NO_FLASH, None, "", 0.5, None, 0.0, 0.0)
    row.add_entries([entry(TINY_LLM, 1.0), entry(FLASH, 2.0), wrong])
    assert row.seconds(LLAMA_CPP) == 2.0


def markdown_of(row: Row) -> str:
    row.tokens = 1000
    return markdown({**machine.describe(), "groups": {"decode": ""}, "repeats": 1, "rows": [row.record()]})


def test_targets_of_a_batch_are_rates_of_all_its_tokens() -> None:
    case = Case("batch", "batch", SMALL, "bfloat16", 128)
    assert met(case, entry(TINY_LLM, 1.0), entry(BATCH, 0.25)) == {"rate over one sequence": True}
    assert met(case, entry(TINY_LLM, 1.0), entry(BATCH, 0.26)) == {"rate over one sequence": False}
    assert met(replace(case, dtype="float32"), entry(TINY_LLM, 1.0), entry(BATCH, 0.33)) == {
        "rate over one sequence": True
    }


def test_memory_may_be_a_quarter_more_than_weights_and_cache_and_a_hundred_megabytes() -> None:
    assert memory_verdict(300_000_000, 20_000_000, 500_000_000).met is True
    assert memory_verdict(300_000_000, 20_000_000, 500_000_001).met is False
