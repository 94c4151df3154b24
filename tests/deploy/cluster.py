"""Ray on this machine with our application, started by `serve run`; its processes, and their end."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ..support.processes.child import ROOT
from ..support.serving.running import RunningServer

START_SECONDS = 300
# Ray gives up a proxy that takes longer to start, on a machine that compiles something else meanwhile.
PATIENT = dict.fromkeys(
    ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"], "60"
)
REPLICA = b"ray::ServeReplica:tiny-llm:Replica"


@dataclass
class Cluster(RunningServer):
    """`server` is the process of `serve run`; all others of Ray descend from it."""

    log: Path = Path()

    def replicas(self) -> list[int]:
        """The ids of the processes with engines."""
        return [process for process in descendants(self.server.pid) if command(process).startswith(REPLICA)]

    def wait_for_replicas(self, number: int, seconds: float = START_SECONDS) -> None:
        """Until so many answer."""
        end = time.monotonic() + seconds
        while len(self.metric("tiny_llm_num_requests_running")) != number:
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            time.sleep(0.2)

    def metric(self, name: str, **labels: str) -> dict[str, float]:
        """The values of a sample, by replica."""
        page = self.get("/metrics").body.decode()
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {
            sample.labels["replica"]: sample.value
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }


def command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(process: int) -> Iterator[int]:
    children = Path(f"/proc/{process}/task/{process}/children")
    found = [int(child) for child in children.read_text().split()] if children.exists() else []
    for child in found:
        yield child
        yield from descendants(child)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


@contextmanager
def running(
    config: Mapping[str, Any], folder: Path, headers: Mapping[str, str], ready: int = 200
) -> Iterator[Cluster]:
    """The application of this configuration, on a free port; JSON is YAML. `ready`: its first status."""
    address = ("127.0.0.1", free_port())
    http = {"host": address[0], "port": address[1]}
    file, log = folder / "serve.yaml", folder / "log"
    file.write_text(json.dumps({**config, "http_options": http}))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    environment = {**os.environ, **token, **PATIENT, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": "/tmp"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "src" / "extensions")])
    serve = [Path(sys.executable).parent / "serve", "run", file]
    with log.open("wb") as output:
        process = subprocess.Popen(serve, cwd=ROOT, env=environment, stdout=output, stderr=output)
    cluster = Cluster(process, address, None, dict(headers), log)
    try:
        wait_until_ready(cluster, ready)
        yield cluster
    finally:
        started = [process.pid, *descendants(process.pid)]
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            for each in started:
                if b"ray" in command(each):
                    os.kill(each, signal.SIGKILL)


def wait_until_ready(cluster: Cluster, ready: int) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if cluster.get("/ready").status == ready:
                return
        except OSError:
            pass
        assert cluster.server.poll() is None, cluster.log.read_text()[-4000:]
        assert time.monotonic() < end, cluster.log.read_text()[-4000:]
        time.sleep(0.5)
