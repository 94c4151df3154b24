"""The real program under load: its metrics, its memory, and what it logged."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPORTED = re.compile(r"POST \S+ \d+ in ")
SAMPLE = re.compile(r'^tiny_llm_(\w+)\{(?:finished_reason="(\w+)",)?model_name="[^"]*"\} (\S+)$', re.M)
# Fewer places than clients and few pages, so that requests queue for both.
FLAGS = ["--max-running", "24", "--kv-memory", "8M", "--max-context", "512", "--log-format", "json"]
SECONDS = 60.0


class ServerProgram:
    """`tiny-llm serve` with the built-in model, on a free port."""

    def __init__(self, process: subprocess.Popen[str], log: Path):
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"the server did not start:\n{log.read_text()}")
        self.process = process
        self.port = int(found[1])
        self._log = log

    def metrics(self) -> dict[str, float]:
        """By name; request_success_total also by reason, as request_success_total.stop."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=SECONDS) as answer:
            text = answer.read().decode()
        return {
            name + (f".{reason}" if reason else ""): float(number)
            for name, reason, number in SAMPLE.findall(text)
        }

    def memory(self) -> int:
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def at_rest(self) -> dict[str, float]:
        """The metrics once nothing runs or waits; as they are after some seconds otherwise."""
        end = time.monotonic() + 10
        while True:
            metrics = self.metrics()
            is_busy = metrics["num_requests_running"] + metrics["num_requests_waiting"] > 0
            if not is_busy or time.monotonic() > end:
                return metrics
            time.sleep(0.1)

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def log_records(self) -> Iterator[dict[str, Any]]:
        with self._log.open() as lines:
            yield from (json.loads(line) for line in lines if line.startswith("{"))  # others are of the start

    def reported(self) -> Counter[str]:
        """How many ends each request has in the log, by its id."""
        return Counter(
            record["request_id"] for record in self.log_records() if REPORTED.match(record["message"])
        )

    def errors(self) -> list[str]:
        """Messages of errors in the log."""
        return [r["message"] for r in self.log_records() if r["level"] in ("ERROR", "CRITICAL")]


@contextmanager
def server_program(log: Path) -> Iterator[ServerProgram]:
    with log.open("w") as stderr:
        command = [sys.executable, "-m", "tiny_llm", "serve", "--port", "0", *FLAGS]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        with process:
            try:
                yield ServerProgram(process, log)
            finally:
                process.kill()
    finally:
        process.wait()
