"""`tiny-llm serve` in a process of its own: what it prints, and how it stops."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiny_llm.server.run import SIGNALS, Server, address_of
from tiny_llm.server.settings import Settings

from ..support.processes.child import ROOT
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, wait_until

REAL = ["tiny_llm", "serve"]
FAKE = ["tests.support.serving.program"]  # followed by the time of a token


class Program:
    """The running command; its address is read from what it prints."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        assert process.stdout is not None
        self.lines = [process.stdout.readline(), process.stdout.readline()]
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.lines[0])
        assert found, self.lines
        self.port = int(found[1])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def get(self, path: str) -> int:
        connection = self.connect()
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def begin(self, tokens: int) -> http.client.HTTPResponse:
        """A stream, of which the first event has arrived."""
        connection = self.connect()
        body = json.dumps({"prompt": "Once", "max_tokens": tokens, "stream": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.readline().startswith(b"data: ")
        return response


@contextmanager
def started(*program: str, port: int = 0, shell: str = 'exec "$@"') -> Iterator[Program]:
    """`shell` starts the command, perhaps with other streams."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with subprocess.Popen(
        ["sh", "-c", shell, "sh", sys.executable, "-m", *program, "--port", str(port)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()


def test_the_first_signal_lets_answers_finish_and_refuses_new_requests() -> None:
    with started(*FAKE, "0.05", "--log-format", "json", "--drain-timeout", "7") as program:
        assert program.get("/ready") == 200
        stream = program.begin(tokens=20)
        program.process.send_signal(signal.SIGTERM)
        wait_until(lambda: program.get("/ready") == 503)
        assert program.get("/health") == 200
        late = program.connect()
        late.request("POST", "/v1/completions", "{}", {"Content-Type": "application/json"})
        refused = late.getresponse()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        error = json.loads(refused.read())["error"]
        assert error["code"] == "draining"
        told = re.fullmatch(
            "the server is shutting down: it accepts no new requests, "
            r"and those that it has must end within (\d+) s",
            error["message"],
        )
        assert told
        assert 1 <= int(told[1]) <= 7
        assert stream.read().endswith(b"data: [DONE]\n\n")
        _, logged = program.process.communicate(timeout=SECONDS)
        assert program.process.returncode == 0
        records = [json.loads(line) for line in logged.splitlines()]
        assert any("POST /v1/completions 200" in record["message"] for record in records)
        drain = [record["message"] for record in records if "shutting down" in record["message"]]
        assert drain == [
            "shutting down: no new requests; in flight: 1, with 7 s to be answered; "
            "another signal ends the server at once",
            "shutting down: all requests have been answered",
        ]
        assert all(re.fullmatch("req_[0-9a-f]{24}|-", record["request_id"]) for record in records)


def test_after_the_drain_timeout_answers_are_cut() -> None:
    with started(*FAKE, "0.05", "--drain-timeout", "0") as program:
        stream = program.begin(tokens=1000)
        program.process.send_signal(signal.SIGINT)
        error = json.loads(stream.read().strip().rpartition(b"data: ")[2])["error"]
        assert error["code"] == "draining"
        assert error["message"] == "the server has shut down before the answer was complete"
        _, logged = program.process.communicate(timeout=SECONDS)
        assert program.process.returncode == 0
        assert "WARNING [-] shutting down: not answered within 0 s, and cut: 1" in logged
        assert "ERROR" not in logged


def test_the_second_signal_ends_the_program_at_once() -> None:
    with started(*FAKE, "0.05") as program:
        program.begin(tokens=1000)
        program.process.send_signal(signal.SIGTERM)
        wait_until(lambda: program.get("/ready") == 503)
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(SECONDS) == 128 + signal.SIGTERM


def test_a_killed_server_leaves_a_broken_stream_and_its_port_is_free_at_once() -> None:
    with started(*FAKE, "0.05") as killed:
        stream = killed.begin(tokens=1000)
        killed.process.kill()
        with pytest.raises((http.client.IncompleteRead, ConnectionError)) as broken:
            stream.read()
        assert b"[DONE]" not in getattr(broken.value, "partial", b"")
        with started(*FAKE, "0", port=killed.port) as program:
            assert program.port == killed.port
            assert program.begin(tokens=5).read().endswith(b"data: [DONE]\n\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("shell", ['exec "$@" 2>/dev/full', 'exec "$@" 2>&-'], ids=["full disk", "closed"])
def test_a_log_that_cannot_be_written_changes_no_answer_and_no_exit_code(shell: str) -> None:
    with started(*FAKE, "0", shell=shell) as program:
        for _ in range(3):
            assert program.begin(tokens=5).read().endswith(b"data: [DONE]\n\n")
        assert program.get("/v1/unknown") == 404
        program.process.send_signal(signal.SIGTERM)
        assert program.process.wait(SECONDS) == 0


def test_the_printed_command_works_and_the_log_has_escapes_but_no_prompts() -> None:
    """The command in its parts, without curl, which a machine may lack."""
    with started(*REAL) as program:
        found = re.fullmatch(r"curl (\S+) -H '(.+?)' -d '(.+)'\n", program.lines[1])
        assert found, program.lines
        url, header, body = found.groups()
        assert f"a page to chat at http://127.0.0.1:{program.port}/." in program.lines[0]
        assert program.get("/") == 200
        connection = program.connect()
        connection.request("POST", url.partition(str(program.port))[2], body, dict([header.split(": ")]))
        answer = json.loads(connection.getresponse().read())
        assert answer["choices"][0]["message"]["content"]
        assert answer["model"] == "tiny"

        body = json.dumps({"prompt": "a secret wish", "stra\x1b[31mnge": 1, "model": "x\ny"})
        headers = {"Content-Type": "application/json", "X-Request-Id": "my-id"}
        connection.request("POST", "/v1/completions", body, headers)
        assert connection.getresponse().status == 404
        assert program.get("/v1/%0a%1b%5b31m%e2%80%ae") == 404
        program.process.send_signal(signal.SIGTERM)
        _, logged = program.process.communicate(timeout=SECONDS)
    assert program.process.returncode == 0
    assert "secret" not in logged
    assert "FlashAttention" not in logged
    lines = logged.splitlines()
    assert all(line.isprintable() for line in lines)
    assert sum("[my-id] POST /v1/completions 404" in line for line in lines) == 1
    assert sum("unknown field" in line for line in lines) == 1


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux has /proc")
def test_a_server_at_rest_takes_no_cpu() -> None:
    """Its time on CPUs is counted, which does not depend on how busy the machine is."""
    with started(*REAL) as program:
        assert program.begin(tokens=30).read().endswith(b"data: [DONE]\n\n")
        time.sleep(0.5)  # what ends after an answer
        before = cpu_seconds(program.process.pid)
        time.sleep(3)
        assert cpu_seconds(program.process.pid) - before < 0.1


def test_signals_are_those_of_the_program_again_when_its_server_has_ended() -> None:
    server = Server({"fake": FakeEngine()}, Settings())

    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in SIGNALS]

    before = handlers()
    with server.capture_signals():
        assert handlers() == [server.handle_exit] * len(SIGNALS)
    assert handlers() == before


@pytest.mark.parametrize(
    ("name", "url"),
    [
        (("127.0.0.2", 8000), "http://127.0.0.2:8000"),
        (("0.0.0.0", 80), "http://127.0.0.1:80"),
        (("::1", 8000, 0, 0), "http://[::1]:8000"),
        (("::", 8000, 0, 0), "http://[::1]:8000"),
    ],
)
def test_its_address_is_one_that_a_client_on_this_machine_can_open(name: Any, url: str) -> None:
    bound: Any = SimpleNamespace(getsockname=lambda: name)
    assert address_of(bound) == url
