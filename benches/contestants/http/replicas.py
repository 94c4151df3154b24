"""Real replicas on Ray for `bench scaling`, a workload that is played to them, and what came back."""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benches.cases.scaling import FROM
from benches.cases.traffic import Workload
from benches.harness.machine import ROOT
from tiny_llm_tools.benchmark.requests import BYTE_TOKENS

VOCABULARY = 3000  # of every model that this plays to
SECONDS = 300
ALONE = 20  # requests
FRESH = 10**6  # no workload has so many conversations: those of another seed are others


class Address:
    def __init__(self, port: int):
        self._port = port

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def complete(self, prompt: list[int], output: int) -> tuple[float, int]:
        """When its first token came, and its tokens."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        fields = {
            "prompt": prompt,
            "max_tokens": output,
            "ignore_eos": True,
            "stream": True,
            "temperature": 1,
        }
        connection.request(
            "POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        first, events = 0.0, 0
        for line in answer:
            if line.startswith(b"data: {"):
                first, events = first or time.perf_counter(), events + 1
        if answer.status != 200 or not events:
            raise RuntimeError(f"the answer has status {answer.status} and {events} events")
        return first, output

    def total(self, name: str) -> float:
        """Of all replicas."""
        families = text_string_to_metric_families(self.get("/metrics")[1].decode())
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


@contextmanager
def on_ray(replicas: int, cpus: int, **arguments: Any) -> Iterator[Address]:
    """So many replicas, each with `cpus` threads, when all answer."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    given = {"replicas": replicas, "cpus": cpus, "offline": True, **arguments}
    program = [sys.executable, "-m", "benches.contestants.http.ray_program"]
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # by default 15: any other program on the machine would come first
    }
    process = subprocess.Popen(
        [*program, str(replicas * cpus), str(port), json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018
    try:
        for line in process.stdout:
            if line == "ready\n":
                break
        else:
            raise RuntimeError("the replicas did not start: is the extra `ray` installed?")
        yield Address(port)
    finally:
        process.stdin.close()
        process.wait(SECONDS)


def prompt_ids(conversation: int, tokens: int) -> list[int]:
    """The first tokens of its endless text."""
    return random.Random(conversation).choices(range(BYTE_TOKENS, VOCABULARY), k=tokens)


def play(address: Address, workload: Workload) -> dict[str, float]:
    """The requests at their times, each on a thread; then rates and times as a simulation records them."""
    waited: list[tuple[float, float]] = []
    ended: list[tuple[float, int]] = []
    failures: list[Exception] = []
    before = {name: address.total(f"tiny_llm_prefix_cache_{name}_total") for name in ("hits", "queries")}
    start = time.perf_counter()

    def ask(second: float, conversation: int, turn: int) -> None:
        try:
            sent = time.perf_counter()
            prompt = prompt_ids(conversation + FRESH * workload.seed, workload.prompt(turn))
            first, tokens = address.complete(prompt, workload.output)
            waited.append((second, first - sent))
            ended.append((time.perf_counter() - start, tokens))
        except Exception as error:
            failures.append(error)

    threads = []
    for second, conversation, turn in workload.arrivals():
        time.sleep(max(0.0, start + second - time.perf_counter()))
        threads.append(threading.Thread(target=ask, args=(second, conversation, turn)))
        threads[-1].start()
    last = time.perf_counter() - start
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    after = {name: address.total(f"tiny_llm_prefix_cache_{name}_total") for name in before}
    seconds = sorted(wait for second, wait in waited if second > last * FROM)
    return {
        "requests_per_second": sum(last * FROM < end <= last for end, _ in ended) / (last * (1 - FROM)),
        "hit_rate": (after["hits"] - before["hits"]) / (after["queries"] - before["queries"]),
        "first_token_p50": seconds[len(seconds) // 2],
        "first_token_p99": seconds[len(seconds) * 99 // 100],
    }
