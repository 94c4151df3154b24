"""Where a record was measured: machine, system, packages, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "tiny-llm",
    "mlx",
    "mlx-cpu",
    "torch",
    "llama-cpp-python",
    "openvino",
    "mlx-lm",
    "numpy",
    "nanobind",
)


def cpus() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def others_running() -> float:
    """Threads of other processes that run or wait for a core now; 0 if the system does not say."""
    for line in _lines(Path("/proc/stat")):
        if line.startswith("procs_running"):
            return max(0.0, float(line.split()[1]) - 1)  # one of them is this thread
    return 0.0


def cpu_model() -> str:
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe() -> dict[str, Any]:
    """Machine, software and commit of this run."""
    return {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cpus_allowed": cpus(),
        "cpus_present": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "HEAD") or "unknown",
        "changed_files": bool(_output("git", "-C", str(ROOT), "status", "--porcelain")),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
