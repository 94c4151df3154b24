"""The processor time that requests and events of answers take in Ray's processes, as /proc counts it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benches.cases.stations import Costs
from benches.contestants.http.replicas import ALONE, Address, prompt_ids

# The way of a request, with the beginning of each command line; this process is the client.
PROCESSES = {
    "client": b"",
    "proxy": b"ray::ProxyActor",
    "gateway": b"ray::ServeReplica:default:RayGateway",
    "server": b"ray::ServeReplica:default:Replica",
}
ENGINE_THREADS = 2  # of a replica, the busiest ones: their time is in that of its steps
SHORT, EVENTS = 8, 32  # tokens of a prompt, more tokens of an answer


def measured_costs(address: Address) -> dict[str, Costs]:
    """Of each process, while nothing else is asked: of short answers, and what longer ones add."""
    short, long = _seconds(address, 1), _seconds(address, 1 + EVENTS)
    costs = {}
    for name in PROCESSES:
        event = max(long[name] - short[name], 0.0) / EVENTS
        costs[name] = Costs(max(short[name] - event, 0.0), event)
    return costs


def _seconds(address: Address, output: int) -> dict[str, float]:
    """For each of some requests."""
    before = {name: _threads(command) for name, command in PROCESSES.items()}
    for number in range(ALONE):
        address.complete(prompt_ids(-1 - number - ALONE * output, SHORT), output)
    found = {}
    for name, command in PROCESSES.items():
        spans = sorted(now - before[name].get(thread, 0.0) for thread, now in _threads(command).items())
        found[name] = sum(spans[:-ENGINE_THREADS] if name == "server" else spans) / ALONE
    return found


def _threads(command: bytes) -> dict[str, float]:
    """Seconds of each thread of the processes with this command; without one, of this process as a whole."""
    if not command:
        return {"": time.process_time()}
    seconds = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(command):
                for thread in (process / "task").iterdir():
                    ticks = (thread / "stat").read_text().rpartition(") ")[2].split()[11:13]
                    seconds[thread.name] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        except OSError:  # it has ended
            continue
    return seconds
