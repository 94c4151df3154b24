"""Memory of attention beyond its inputs, by MLX's allocator and by the operating system.

In a process of its own (`python -m benches.contestants.attention_memory`): a high-water mark never falls.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx

from benches.cases.attention import Case
from benches.contestants.attention import Inputs, tiny_llm
from benches.harness.machine import ROOT

COUNTER, RESIDENT = "MLX's counter", "resident size"


def extra_bytes(case: Case, isa: str, threads: int) -> dict[str, int]:
    """Peak beyond the inputs, by both measures, from a fresh process."""
    request = json.dumps({"case": asdict(case), "isa": isa, "threads": threads})
    done = subprocess.run(
        [sys.executable, "-m", "benches.contestants.attention_memory", request],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"bench attention: memory of {case.name}: {done.stderr.strip()}")
    result: dict[str, int] = json.loads(done.stdout)
    return result


def _measure(case: Case, isa: str, threads: int) -> dict[str, int]:
    # A small call first: code, worker threads and their scratch memory are allocated once.
    small = replace(case, L=256, S=256)
    tiny_llm(small, Inputs(small), isa, threads).call()
    inputs = Inputs(case)
    call = tiny_llm(case, inputs, isa, threads).call
    mx.clear_cache()  # freed memory of the inputs would hide new memory

    _reset_high_water()
    mx.reset_peak_memory()
    before = {COUNTER: mx.get_active_memory(), RESIDENT: _resident("VmRSS")}
    out = call()
    after = {COUNTER: mx.get_peak_memory(), RESIDENT: _resident("VmHWM")}
    del out
    return {what: after[what] - before[what] for what in before}


def _reset_high_water() -> None:
    """On Linux the high-water mark restarts from the present size."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def _resident(field: str) -> int:
    """VmRSS or VmHWM of this process in bytes; the high-water mark for both on other systems."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    given = json.loads(sys.argv[1])
    print(json.dumps(_measure(Case(**given["case"]), given["isa"], given["threads"])))
