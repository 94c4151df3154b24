"""`bench serve` as a command: our server, other servers, its table and files, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.cli.exit_codes import FAILED, INTERRUPTED, REFUSED
from tiny_llm.cli.serve import KEY_VARIABLE
from tiny_llm.engine import Engine

from ...support.processes.child import ROOT
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import SECONDS, RunningServer, running
from ...support.serving.scripted import DONE, END, HEAD, chunk, plain, scripted, token, usage
from .conftest import Ended, Run

FEW = "--num-prompts 3 --random-input-len 6 --random-output-len 5".split()
GOOD = [HEAD, token("a"), token("b", "length"), usage(4, 2), chunk(DONE), END]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with Engine("tiny") as engine, running({"tiny": engine}) as started:
        yield started


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def measured(run: Run, tmp_path: Path, *flags: str) -> tuple[Any, Ended]:
    """The record of a run, and what it printed."""
    file = tmp_path / "result.json"
    ended = run("bench", "serve", *FEW, "--result", str(file), *flags)
    return json.loads(file.read_text()) if file.exists() else None, ended


@pytest.mark.parametrize("flags", [(), ("--send-text",), ("--endpoint", "chat")])
def test_our_server_is_measured(
    run: Run, tmp_path: Path, server: RunningServer, flags: tuple[str, ...]
) -> None:
    record, ended = measured(run, tmp_path, "--base-url", f"{server.url}/v1", *flags)
    assert ended.code == 0, ended.err
    assert (record["completed"], record["failed"], record["errors"]) == (3, 0, {})
    assert record["total_output_tokens"] == 15  # past end tokens
    per_prompt = record["total_input_tokens"] / 3
    assert per_prompt > 6 if "chat" in flags else per_prompt == 6  # the chat template adds tokens
    assert record["model_id"] == "tiny"
    assert record["backend"] == ("openai-chat" if "chat" in flags else "openai")
    assert record["request_rate"] == "inf"
    assert 0 < record["median_ttft_ms"] <= record["median_e2el_ms"]
    assert record["installation"]["tiny_llm"]
    assert "completed requests" in ended.out
    assert "without usage" not in ended.out


def test_without_a_url_our_own_server_is_started_and_ended(run: Run, tmp_path: Path) -> None:
    record, ended = measured(run, tmp_path, "--max-concurrency", "1", "--random-prefix-len", "4")
    assert ended.code == 0, ended.err
    assert (record["completed"], record["total_input_tokens"]) == (3, 30)
    assert (record["max_concurrent_requests"], record["max_concurrency"]) == (1, 1)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(record["base_url"].rpartition(":")[2])))


def test_several_rates_give_a_column_and_a_record_each_and_a_picture(
    run: Run, tmp_path: Path, server: RunningServer
) -> None:
    picture = tmp_path / "rates.svg"
    flags = ["--request-rate", "40", "inf", "--burstiness", "2", "--plot", str(picture)]
    records, ended = measured(run, tmp_path, "--base-url", server.url, *flags)
    assert ended.code == 0, ended.err
    assert [record["request_rate"] for record in records] == [40, "inf"]
    assert [record["completed"] for record in records] == [3, 3]
    assert records[0]["duration"] > records[0]["median_e2el_ms"] / 1000
    assert ended.out.splitlines()[3].split() == ["request", "rate", "40", "inf"]
    assert "40/s" in picture.read_text()


def test_figures_that_were_asked_for(run: Run, tmp_path: Path, server: RunningServer) -> None:
    flags = ["--goodput", "ttft:60000", "tpot:0.000001", "--percentile-metrics", "ttft,itl"]
    flags += ["--metric-percentiles", "50,99.9"]
    record, _ = measured(run, tmp_path, "--base-url", server.url, *flags)
    assert record["request_goodput"] == 0
    assert record["goodput"] == {"ttft": 60000, "tpot": 0.000001}
    assert "p99.9_ttft_ms" in record
    assert "p50_itl_ms" in record
    assert not [key for key in record if "tpot_ms" in key or "p99_" in key]


def test_the_key_comes_from_a_file_or_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("secret\n")
    with running(FakeEngine(), api_keys=("secret",)) as guarded:
        url = ["--base-url", guarded.url]
        assert measured(run, tmp_path, *url, "--api-key-file", str(file))[1].code == 0
        refused = run("bench", "serve", *FEW, *url)
        monkeypatch.setenv(KEY_VARIABLE, "secret")
        assert run("bench", "serve", *FEW, *url).code == 0
    assert refused.code == FAILED
    assert "refuses the key (HTTP 401)" in refused.err
    assert refused.err.count("\n") == 1


def test_failures_are_counted_and_shown(run: Run, tmp_path: Path) -> None:
    full = plain("429 Too Many Requests", b'{"error": {"message": "queue full"}}')
    with scripted(GOOD, GOOD, [full]) as server:  # the first one is the warm-up
        record, ended = measured(run, tmp_path, "--base-url", server.url)
    assert ended.code == 0
    assert (record["completed"], record["failed"]) == (1, 2)
    assert record["errors"] == {"HTTP 429: queue full": 2}
    assert "2 failed: HTTP 429: queue full" in ended.out


def test_tokens_without_usage_are_counted_as_events_and_it_is_said(run: Run, tmp_path: Path) -> None:
    with scripted([HEAD, token("a"), token("b", "length"), chunk(DONE), END]) as server:
        record, ended = measured(run, tmp_path, "--base-url", server.url)
    assert record["total_output_tokens"] == 6
    assert "3 answers came without usage: their tokens are counted as events" in ended.out


def test_if_all_requests_fail_the_table_is_shown_and_the_code_is_1(run: Run, tmp_path: Path) -> None:
    with scripted(GOOD, [HEAD, token("a")]) as server:
        record, ended = measured(run, tmp_path, "--base-url", server.url)
    assert ended.code == FAILED
    assert record["failed"] == 3
    assert record["mean_ttft_ms"] is None
    assert "3 failed: the connection was closed before the end of the answer" in ended.out
    assert "no request was completed" in ended.err


def test_a_failed_warm_up_measures_nothing(run: Run) -> None:
    with scripted([plain("400 Bad Request", b'{"error": {"message": "ignore_eos: unknown"}}')]) as server:
        ended = run("bench", "serve", *FEW, "--base-url", server.url)
        skipped = run("bench", "serve", *FEW, "--base-url", server.url, "--num-warmups", "0")
    assert (ended.code, ended.out) == (FAILED, "")
    assert "nothing was measured: HTTP 400: ignore_eos: unknown" in ended.err
    assert "3 failed: HTTP 400" in skipped.out


def test_a_server_without_a_list_of_models_needs_a_name(run: Run) -> None:
    with scripted(GOOD, models=plain("404 Not Found", b"{}")) as server:
        url = ["--base-url", server.url]
        without = run("bench", "serve", *FEW, *url)
        named = run("bench", "serve", *FEW, *url, "--model", "other")
    assert without.code == REFUSED
    assert "--model: is needed" in without.err
    assert named.code == 0
    assert "other is not on this machine, so prompts are made of the tokens of tiny" in named.err
    assert b'"other"' in server.received[-1][1]


def test_what_is_no_server_is_a_failure(run: Run) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        ended = run("bench", "serve", *FEW, "--base-url", url)
    assert ended.code == FAILED
    assert f"cannot reach {url}: Connection refused" in ended.err
    with scripted(GOOD, models=plain("200 OK", b"<html>", "text/html")) as other:
        ended = run("bench", "serve", *FEW, "--base-url", other.url)
    assert "is not a list of models" in ended.err
    ended = run("bench", "serve", *FEW, "--base-url", "http://no-such-host.invalid:80")
    assert ended.code == FAILED
    assert "--base-url: http://no-such-host.invalid:80: " in ended.err


def test_an_unknown_model_and_too_many_tokens_are_refused(run: Run, server: RunningServer) -> None:
    url = ["--base-url", server.url]
    ended = run("bench", "serve", *url, "--model", "other")
    assert ended.code == REFUSED
    assert "--model: got other, but the server has tiny" in ended.err
    ended = run("bench", "serve", *url, "--random-input-len", "3000")
    assert ended.code == REFUSED
    assert "got up to 3064 tokens together, expected at most the context of 2048" in ended.err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--request-rate", "0"], "--request-rate: got '0', expected a number above 0, or inf"),
        (["--request-rate", "2", "2"], "--request-rate: got a rate twice"),
        (["--burstiness", "2"], "--burstiness: has no effect at --request-rate inf"),
        (["--burstiness", "0"], "--burstiness: got '0'"),
        (["--random-range-ratio", "1"], "--random-range-ratio: got '1', expected a number from 0 to below 1"),
        (["--goodput", "itl:5"], "--goodput: got 'itl:5', expected ttft:MS, tpot:MS, e2el:MS"),
        (["--goodput", "ttft"], "--goodput: got '', expected a number of milliseconds above 0 after ttft:"),
        (["--goodput", "ttft:1", "ttft:2"], "--goodput: got a name twice"),
        (["--percentile-metrics", "ttft,x"], "--percentile-metrics: got 'ttft,x', expected some of"),
        (["--metric-percentiles", "101"], "--metric-percentiles: got '101', expected a number above 0, at"),
        (["--plot", "x.svg"], "--plot: needs at least two numbers after --request-rate"),
        (["--plot", "x.pdf"], "--plot: got 'x.pdf', expected a name that ends in .svg or .png"),
        (["--base-url", "localhost"], "--base-url: got 'localhost', expected a URL such as"),
        (["--api-key-file", "key"], "--api-key-file: has no effect without --base-url"),
        (["--endpoint", "chat", "--send-text"], "--send-text: has no effect with --endpoint chat"),
        (["--base-url", "http://x", "--api-key-file", "/nowhere"], "--api-key-file: /nowhere: No such"),
        (["--endpoint", "embeddings"], "--endpoint: invalid choice: 'embeddings'"),
        (["--num-prompts", "0"], "--num-prompts: got '0'"),
        (["--timeout", "0"], "--timeout: got '0'"),
        (["--num"], "--num: unknown option"),
    ],
)  # fmt: skip
def test_contradictory_and_bad_flags(run: Run, flags: list[str], sentence: str) -> None:
    ended = run("bench", "serve", *flags)
    assert (ended.code, ended.out) == (REFUSED, "")
    assert f"serve: {sentence}" in ended.err
    assert ended.err.count("\n") == 1


def test_options_of_bench_before_serve_are_refused(run: Run) -> None:
    ended = run("bench", "--model", "tiny", "serve")
    assert ended.code == REFUSED
    assert "--model: has no effect before serve; write it after" in ended.err


def test_a_tokenizer_that_is_not_here_is_refused(run: Run, server: RunningServer) -> None:
    ended = run("bench", "serve", *FEW, "--base-url", server.url, "--tokenizer", "/no/such/folder")
    assert ended.code == REFUSED
    assert "--tokenizer: /no/such/folder" in ended.err


def test_ctrl_c_shows_and_writes_what_was_measured(tmp_path: Path) -> None:
    """In a process of its own, as a terminal sends it."""
    file = tmp_path / "result.json"
    with scripted(GOOD, GOOD, [HEAD, token("a"), 30.0]) as server:
        command = [sys.executable, "-m", "tiny_llm", "bench", "serve", *FEW, "--base-url", server.url]
        command += ["--tokenizer", "tiny"]
        with subprocess.Popen(
            [*command, "--result", str(file)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            end = time.monotonic() + SECONDS
            while sum(b"POST" in head for head, _ in server.received) < 4:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == INTERRUPTED, err
    assert err == "tiny-llm bench serve: stopped\n"
    record = json.loads(file.read_text())
    assert (record["completed"], record["failed"], record["interrupted"]) == (1, 2, True)
    assert "2 failed: not finished when the run was stopped" in out
