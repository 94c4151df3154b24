"""The contest of whole models without llama.cpp and without its clock: files, processes, work and targets."""

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
from benches.contestants.models import forms_of_ours
from benches.contestants.names import BATCH, LLAMA_CPP, MLX_LM, OURS, STEP, Missing, Seat
from benches.contestants.pool import Hall
from benches.contestants.worker import Worker
from benches.harness.measure_models import measure
from benches.harness.measured import Measured
from benches.harness.row import Entry
from benches.targets.models import judge, memory_verdict
from tiny_llm.benchmark.harness import Samples
from tiny_llm.benchmark.requests import Request
from tiny_llm.loading import load


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


# Processes


@pytest.fixture
def worker() -> Iterator[Worker]:
    opened = Worker(Seat(OURS, EMBEDDED, "float32", 1, 512))
    yield opened
    opened.close()


def test_a_process_gives_scores_and_times(worker: Worker) -> None:
    asked = worker.ask("scores", who=OURS, prompt=7)
    for name in (OURS, STEP, BATCH):
        np.testing.assert_allclose(worker.ask("scores", who=name, prompt=7), asked, atol=1e-3)
        assert worker.ask("prefill", who=name, prompt=7) > 0
        worker.ask("read", who=name, prompt=7)
        assert worker.ask("decode", who=name, tokens=2) > 0
    assert load(EMBEDDED).nbytes < worker.ask("weights") < 2 * load(EMBEDDED).nbytes  # wider scales
    for _ in range(3):  # longer than the context: answers begin again
        assert worker.ask("decode", who=OURS, tokens=250) > 0
    with pytest.raises(RuntimeError, match="KeyError: 'nobody'"):
        worker.ask("scores", who="nobody", prompt=7)
    assert asked == worker.ask("scores", who=OURS, prompt=7)


def test_a_process_that_is_busy_is_given_up() -> None:
    opened = Worker(Seat(OURS, EMBEDDED, "float32", 1, 512))
    opened.ask("read", who=OURS, prompt=5)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(opened.ask, "decode", who=OURS, tokens=10**6)
        time.sleep(0.1)
        opened.close()
        with pytest.raises(RuntimeError, match="ended with code"):
            asked.result()


def test_all_forms_of_ours_give_the_same_tokens() -> None:
    forms = forms_of_ours(load(EMBEDDED), mx.float32, 512)
    request = Request(tuple(range(300, 320)), 5)
    expected = list(forms[OURS].start(request))
    assert list(forms[BATCH].start(request)) == expected
    assert list(forms[STEP].start(request)) == expected


def test_a_missing_contestant_is_listed_and_the_others_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Missing, match="is not installed"):
        Worker(Seat(LLAMA_CPP, EMBEDDED, "", 1, 512, str(tmp_path / "llama_cpp.py")))
    case = Case("decode", "decode", EMBEDDED, "float32", 5, 2, (LLAMA_CPP,))
    with Hall() as hall:
        monkeypatch.setattr(hall, "_file", lambda model: tmp_path / "llama_cpp.py")
        (row,) = measure(hall, case, [1], repeats=1)
    assert list(row.missing) == [LLAMA_CPP]
    assert [(entry.name, entry.seconds is not None) for entry in row.entries] == [(OURS, True), (STEP, True)]
    assert next(verdict.met for verdict in row.verdicts) is None


def test_who_computes_another_model_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("batch", "batch", EMBEDDED, "float32", 5, 2)
    ask = Worker.ask

    def spoiled(self: Worker, what: str, **arguments: Any) -> Any:
        answer = ask(self, what, **arguments)
        return answer[::-1] if what == "scores" and arguments["who"] == BATCH else answer

    monkeypatch.setattr(Worker, "ask", spoiled)
    with Hall() as hall:
        (row,) = measure(hall, case, [1], repeats=1)
    assert [entry.seconds is not None for entry in row.entries] == [True, False]


def test_a_process_of_ours_has_its_weights_in_memory_and_little_else() -> None:
    weights, peak = footprint(EMBEDDED, "bfloat16", 64, threads=1)
    assert 0 < weights < peak < weights + 200e6


# Work and targets


def test_every_group_has_distinct_rows() -> None:
    names = [case.name for group in GROUPS for case in cases(group) if case.group == group]
    assert len(set(names)) == len(names)
    assert {case.group for group in GROUPS for case in cases(group)} == set(GROUPS)


def test_a_token_reads_all_weights_and_its_cache_and_a_batch_shares_the_weights() -> None:
    case = Case("decode", "decode", SMALL, "bfloat16", 100)
    cache = 24 * 2 * 2 * 64 * 100 * 2
    assert work(case, 1000) == (0.0, 1000 + cache)
    assert work(replace(case, kind="batch"), 8000) == (0.0, 1000 + cache)
    assert work(replace(case, dtype="float32"), 0) == (0.0, 2 * cache)


def test_a_prompt_multiplies_every_weight_once_a_token() -> None:
    flops, read = work(Case("prefill", "prefill", SMALL, "bfloat16", 2), 7)
    layer = 896 * 896 * 2 + 896 * 128 * 2 + 3 * 896 * 4864
    pairs = 3  # the first token sees itself, the second both
    assert flops == 24 * (2 * layer * 2 + 4 * 896 * pairs) + 2 * 896 * 151936
    assert read == 7


def entry(name: str, seconds: float, floor: float = 0.0) -> Entry:
    return Entry(name, None, "", 0.0, Samples((seconds,)), 1.0, floor)


def met(case: Case, *entries: Entry) -> dict[str, bool | None]:
    row = Measured(case.group, case.name, 2, entries=list(entries))
    return {verdict.what: verdict.met for verdict in judge(case, row)}


def test_targets_against_the_peers() -> None:
    decode = Case("decode", "decode", SMALL, "bfloat16", 128, rivals=(LLAMA_CPP,))
    assert met(decode, entry(OURS, 1.0, 0.7), entry(LLAMA_CPP, 1.99)) == {
        "speed over llama-cpp-python": False,
        "share of the read bandwidth": True,
    }
    beyond = met(decode, entry(OURS, 1.0, 1.06), entry(LLAMA_CPP, 1.99))
    assert beyond["share of the read bandwidth"] is None  # the ceiling was measured too low
    prefill = replace(decode, group="prefill", kind="prefill", prompt=512)
    assert met(prefill, entry(OURS, 0.511), entry(LLAMA_CPP, 1.6)) == {
        "speed over llama-cpp-python": True,
        "rate": True,
    }
    assert met(prefill, entry(OURS, 0.513)) == {"speed over llama-cpp-python": None, "rate": False}
    slow = replace(decode, rivals=(MLX_LM,))
    assert met(slow, entry(OURS, 1.0), entry(MLX_LM, 20.0)) == {"speed over mlx-lm": True}
    assert met(replace(slow, kind="prefill"), entry(OURS, 1.0), entry(MLX_LM, 199.0)) == {
        "speed over mlx-lm": False
    }


def test_targets_of_a_batch_are_rates_of_all_its_tokens() -> None:
    case = Case("batch", "batch", SMALL, "bfloat16", 128)
    assert met(case, entry(OURS, 1.0), entry(BATCH, 0.25)) == {"rate over one sequence": True}
    assert met(case, entry(OURS, 1.0), entry(BATCH, 0.26)) == {"rate over one sequence": False}
    assert met(replace(case, dtype="float32"), entry(OURS, 1.0), entry(BATCH, 0.33)) == {
        "rate over one sequence": True
    }


def test_memory_may_be_a_quarter_more_than_weights_and_cache_and_a_hundred_megabytes() -> None:
    assert memory_verdict(300_000_000, 20_000_000, 500_000_000).met is True
    assert memory_verdict(300_000_000, 20_000_000, 500_000_001).met is False
