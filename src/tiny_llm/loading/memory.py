"""How much memory a model takes, and whether the machine has it: asked before anything is allocated."""

import os
from pathlib import Path

from .config import ModelConfig
from .errors import LoadError

GIBIBYTE = 2**30
# The limit of a container, and the line of its statistics with what is in use: file caches do not count.
GROUPS = [("memory.max", "anon"), ("memory/memory.limit_in_bytes", "total_rss")]


def check_memory(config: ModelConfig, weights: int) -> None:
    """Refuse a model that cannot fit. A table of rotations has two float32 numbers per position and pair."""
    needed = weights + config.max_position_embeddings * config.head_dim * 4
    available = available_bytes()
    if available is not None and needed > available:
        raise LoadError(
            f"the model needs {needed / GIBIBYTE:.1f} GiB of memory, and {available / GIBIBYTE:.1f} GiB "
            "are free; close other programs or take a smaller model"
        )


def available_bytes(system: Path = Path("/")) -> int | None:
    """The memory that this process may still take; None where the system does not tell."""
    groups = system / "sys/fs/cgroup"
    found = [_free_in_machine(system / "proc/meminfo"), *(_free_in_group(groups / x, y) for x, y in GROUPS)]
    return min((size for size in found if size is not None), default=None)


def _free_in_machine(meminfo: Path) -> int | None:
    try:
        return _line(meminfo, "MemAvailable:") * 1024
    except OSError:  # not Linux: all there is
        names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
        known = all(name in getattr(os, "sysconf_names", {}) for name in names)
        return os.sysconf(names[0]) * os.sysconf(names[1]) if known else None


def _free_in_group(limit: Path, used: str) -> int | None:
    try:
        return max(int(limit.read_text()) - _line(limit.with_name("memory.stat"), used), 0)
    except (OSError, ValueError):  # no such group, or the word "max": no limit
        return None


def _line(path: Path, name: str) -> int:
    """The number behind a name in a file of such lines."""
    found = next(line for line in path.read_text().splitlines() if line.startswith(f"{name} "))
    return int(found.split()[1])
