"""`tiny-llm serve` on two ranks: what clients and a supervisor see when a rank is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..server.test_program import REAL, Program, started
from ..support.processes.child import run_python
from ..support.serving.running import SECONDS, wait_until

pytestmark = pytest.mark.slow
TWO = [*REAL, "--model", "tiny", "--tensor-parallel", "2"]
NOTICED = 10.0  # seconds within which a lost rank is


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found if b"engine.follower" in Path(f"/proc/{each}/cmdline").read_bytes()]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def last_event(program: Program, hurt: Callable[[], None], **fields: object) -> dict:
    """The last event of a stream in which `hurt` happened after its first token."""
    stream = program.begin(**{"tokens": 2000} | fields)
    hurt()
    return json.loads(stream.read().strip().rpartition(b"data: ")[2])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_ends_requests_and_all_processes(number: signal.Signals) -> None:
    with started(*TWO) as program:
        (follower,) = children(program.process.pid)
        began = time.monotonic()
        event = last_event(program, lambda: os.kill(follower, number))
        assert event["error"]["code"] == "engine_failed"
        _, logged = program.process.communicate(timeout=SECONDS)
        assert time.monotonic() - began < NOTICED + 3  # three to end
        assert program.process.returncode == 1
        assert "rank 1 has" in logged
        assert is_gone(follower)
    with started(*TWO, port=program.port) as again:  # as a supervisor would
        assert again.get("/health") == 200


def test_a_rank_is_lost_within_a_prompt() -> None:
    with started(*TWO, "--step-tokens", "64") as program:
        (follower,) = children(program.process.pid)
        connection = program.connect()
        body = json.dumps({"prompt": "word " * 900, "max_tokens": 900})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        os.kill(follower, signal.SIGKILL)
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["error"]["code"]) == (503, "engine_failed")
        assert program.process.wait(SECONDS) == 1


def test_an_idle_server_ends_when_it_loses_a_rank() -> None:
    with started(*TWO) as program:
        (follower,) = children(program.process.pid)
        os.kill(follower, signal.SIGKILL)
        assert program.process.wait(NOTICED) == 1


@pytest.mark.parametrize("shell", ['exec "$@"', 'exec "$@" 2>/dev/full'])
def test_a_follower_ends_with_its_leader(shell: str) -> None:
    """Also where nobody reads what it says."""
    with started(*TWO, shell=shell) as program:
        (follower,) = children(program.process.pid)
        program.process.kill()
        program.process.wait()
        wait_until(lambda: is_gone(follower))


def test_a_signal_lets_answers_finish_on_both_ranks() -> None:
    with started(*TWO) as program:
        (follower,) = children(program.process.pid)
        stream = program.begin(tokens=20)
        program.process.send_signal(signal.SIGTERM)
        assert stream.read().endswith(b"data: [DONE]\n\n")
        assert program.process.wait(SECONDS) == 0
        assert is_gone(follower)


def test_a_host_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The real ssh, where there is one; without it, the message names ssh."""
    hosts = [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("localhost", "no-such-host.invalid")]
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    child = run_python(
        "-m", "tiny_llm", "generate", "--tensor-parallel", "2", "--hostfile", str(tmp_path / "hosts.json")
    )
    assert child.returncode == 1
    assert "rank 1 (no-such-host.invalid)" in child.stderr or "ssh" in child.stderr


def test_a_rank_that_never_connects_is_missed(tmp_path: Path) -> None:
    """An ssh that hangs stands for a machine that does not answer."""
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ssh").chmod(0o755)
    hosts = [{"ssh": name, "ips": ["127.0.0.1"]} for name in ("localhost", "silent")]
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    program = (
        "import tiny_llm.distributed.leader as leader, sys; leader.HELLO_SECONDS = 1.0\n"
        "from tiny_llm.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, "generate", "--tensor-parallel", "2", "--hostfile", "hosts.json"],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert child.returncode == 1
    assert "rank 1 has not connected within 1 s" in child.stderr
