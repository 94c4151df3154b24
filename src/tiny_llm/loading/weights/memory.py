"""Whether a model fits into memory, checked before anything is allocated."""

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ...errors import LoadError

GIBIBYTE = 2**30
# Version 2 (no name) and version 1 of control groups: the folder of the groups, the file with the limit,
# and the line of memory.stat with the memory in use, without file caches.
GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "anon"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "total_rss"),
}


def check_memory(weights: int, stored: int, bytes_per_weight: float | None) -> None:
    """LoadError if `stored` bytes, and a copy of the weights at `bytes_per_weight` if any, do not fit."""
    copied = 0 if bytes_per_weight is None else int(weights * bytes_per_weight)
    needed = stored + copied
    available = available_bytes()
    if available is not None and needed > available:
        raise LoadError(
            f"the model needs {needed / GIBIBYTE:.1f} GiB of memory, and {available / GIBIBYTE:.1f} GiB "
            "are free; close other programs or take a smaller model"
        )


def available_bytes(system: Path = Path("/")) -> int | None:
    """The memory that this process can still allocate; None if the system does not report it."""
    found = [
        _free_in_machine(system / "proc/meminfo"),
        _free_addresses(system / "proc/self/statm"),
        *(_free_in_group(*group) for group in _groups(system)),
    ]
    return min((size for size in found if size is not None), default=None)


def group_limits(system: Path = Path("/")) -> list[int]:
    """The memory that each control group of this process grants, where it has a limit."""
    limits = []
    for path, _ in _groups(system):
        with suppress(OSError, ValueError):  # no such group, or the word "max": no limit
            limits.append(int(path.read_text()))
    return limits


def _free_in_machine(meminfo: Path) -> int | None:
    try:
        return _line(meminfo, "MemAvailable:") * 1024
    except OSError:  # not Linux: all there is
        names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
        known = all(name in getattr(os, "sysconf_names", {}) for name in names)
        return os.sysconf(names[0]) * os.sysconf(names[1]) if known else None


def _free_addresses(statm: Path) -> int | None:
    """The rest of the limit of `ulimit -v`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        used = 0
    return max(limit - used, 0)


def _groups(system: Path) -> Iterator[tuple[Path, str]]:
    """Limit file and statistics line of each control group of this process, up to the root."""
    own = dict.fromkeys(GROUPS, PurePosixPath("/"))
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            own |= {kind: PurePosixPath(path) for kind in kinds.split(",") if kind in GROUPS}
    for kind, (root, limit, used) in GROUPS.items():
        for group in (own[kind], *own[kind].parents):
            yield system / root / group.relative_to("/") / limit, used


def _free_in_group(limit: Path, used: str) -> int | None:
    try:
        return max(int(limit.read_text()) - _line(limit.with_name("memory.stat"), used), 0)
    except (OSError, ValueError):  # no such group, or the word "max": no limit
        return None


def _line(path: Path, name: str) -> int:
    """The number in the line of a file that begins with `name`."""
    found = next(line for line in path.read_text().splitlines() if line.startswith(f"{name} "))
    return int(found.split()[1])
