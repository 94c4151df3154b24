"""`batch --ray` on this machine. `pytest -m ray tests/cli`, after `pip install '.[serve,ray]'`."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiny_llm.cli.exit_codes import FAILED, REFUSED

from .batch_files import EXACT, contents, request, start, wait_for_lines, write_lines
from .conftest import Run
from .terminal import PATIENCE

pytestmark = pytest.mark.ray


def processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
                found[int(folder.name)] = (parent, (folder / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:  # it has ended
                continue
    return found


def workers(driver: int, name: str) -> list[int]:
    """The processes below this one whose command line has this name."""
    running, below = processes(), {driver}
    for _ in range(10):
        below |= {process for process, (parent, _) in running.items() if parent in below}
    return [process for process in below if name in running.get(process, (0, ""))[1]]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err.splitlines()[-1]


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = [request(f"{number} + 5") for number in range(600)]
    wrong = ["{", request("7 + 5"), request("long", max_tokens=9999), json.dumps({"custom_id": "a"})]
    return write_lines(tmp_path / "in.jsonl", [*lines[:300], *wrong, *lines[300:]])


@pytest.fixture
def expected(run: Run, file: Path, tmp_path: Path) -> list[tuple[object, ...]]:
    """The answers of one engine in this process."""
    output = tmp_path / "expected.jsonl"
    assert run("batch", "--input", str(file), "--output", str(output), *EXACT).code == FAILED
    return contents(output)


def test_answers_and_errors_are_those_of_one_engine_also_after_a_kill(
    file: Path, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    flags = ("--input", str(file), "--output", str(output), "--ray", *EXACT)
    first = start(*flags)
    wait_for_lines(output, 32, first)
    first.kill()
    assert first.wait(PATIENCE) == -signal.SIGKILL
    kept = output.read_bytes()
    assert 32 <= kept.count(b"\n") < 604
    code, last = ended(start(*flags))
    assert code == FAILED
    assert "4 lines have an error" in last
    assert contents(output) == expected


def test_an_engine_that_is_killed_comes_back(
    file: Path, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    process = start("--input", str(file), "--output", str(output), "--ray", "--ray-engines", "2", *EXACT)
    wait_for_lines(output, 32, process)
    engines = workers(process.pid, "MapWorker")
    assert len(engines) == 2
    os.kill(engines[0], signal.SIGKILL)
    assert ended(process)[0] == FAILED  # of the four lines
    assert contents(output) == expected


def start_node(log: Path, *flags: str) -> subprocess.Popen[bytes]:
    """A node of Ray with one CPU, which runs until it is terminated."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1", *flags]
    with log.open("w") as file:
        node = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    wait_until(lambda: "Ray runtime started" in log.read_text() or node.poll() is not None)
    assert node.poll() is None, log.read_text()
    return node


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of two nodes on this machine, which want a token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, as it holds sockets
    nodes = [start_node(tmp_path / "head", "--head", "--port", port, "--temp-dir", str(folder))]
    try:
        nodes.append(start_node(tmp_path / "node", "--address", f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"
    finally:
        for node in reversed(nodes):
            os.killpg(node.pid, signal.SIGKILL)  # after SIGTERM it would drain for half a minute
            node.wait(PATIENCE)
        shutil.rmtree(folder)


def test_each_node_of_a_cluster_has_an_engine(
    cluster: str, file: Path, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    process = start("--input", str(file), "--output", str(output), "--ray", cluster, *EXACT)
    wait_for_lines(output, 32, process)
    assert sum("MapWorker" in command for _, command in processes().values()) == 2
    assert ended(process)[0] == FAILED  # of the four lines
    assert contents(output) == expected
    stranger = start("--input", str(file), "--output", str(output), "--ray", cluster, RAY_AUTH_TOKEN="0" * 64)
    code, last = ended(stranger)
    assert code == FAILED
    assert last.startswith(f"tiny-llm batch: --ray: {cluster}: Failed to connect to Ray cluster")


# Takes CPUs of a cluster until its input ends.
TAKE = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False)
Taken = ray.remote(num_cpus=1)(type("Taken", (), {"there": lambda _: 1}))
taken = [Taken.remote() for _ in range(int(sys.argv[2]))]
ray.get([each.there.remote() for each in taken])
print("taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def taken(cluster: str, cpus: int) -> Iterator[None]:
    command = [sys.executable, "-c", TAKE, cluster, str(cpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield
        process.communicate()


def test_only_free_cpus_are_used(
    cluster: str, file: Path, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    flags = ("--input", str(file), "--output", str(output), "--ray", cluster, *EXACT)
    with taken(cluster, 2):
        assert ended(start(*flags)) == (FAILED, "tiny-llm batch: --ray: no CPU of the cluster is free")
    with taken(cluster, 1):
        assert ended(start(*flags))[0] == FAILED  # of the four lines
    assert contents(output) == expected


def test_an_error_of_an_engine_is_one_line_and_nothing_is_left(file: Path, tmp_path: Path) -> None:
    process = start("--input", str(file), "--output", str(tmp_path / "out"), "--ray", "--model", "/nowhere")
    wait_until(lambda: workers(process.pid, "raylet"))
    raylet = workers(process.pid, "raylet")
    code, last = ended(process)
    assert code == FAILED
    assert last.startswith("tiny-llm batch: --ray: /nowhere: is neither a folder nor a known name")
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in raylet))


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (("--ray", "127.0.0.1:1"), FAILED, "--ray: 127.0.0.1:1 cannot be reached: "),
        (("--ray", "ray://head:10001"), REFUSED, "--ray: got ray://head:10001, expected an address such as "),
        (("--ray", "--ray-cpus", "100000"), REFUSED, "--ray: 1 engines with 100000 CPUs each do not fit: "),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_a_cluster_that_cannot_be_used_is_refused(
    file: Path, tmp_path: Path, flags: tuple[str, ...], code: int, sentence: str
) -> None:
    found, last = ended(start("--input", str(file), "--output", str(tmp_path / "out"), *flags))
    assert found == code
    assert last.startswith(f"tiny-llm batch: {sentence}")
