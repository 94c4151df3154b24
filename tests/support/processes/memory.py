"""Where arrays lie, and what Linux was told about the pages there."""

from pathlib import Path

import mlx.core as mx
import numpy as np

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
SMAPS = Path("/proc/self/smaps")


def address(array: mx.array) -> int:
    return int(np.array(array.view(mx.uint8), copy=False).ctypes.data)


def mappings() -> dict[range, set[str]]:
    """The mappings of this process and the flags of each."""
    found: dict[range, set[str]] = {}
    mapping = range(0)
    for line in SMAPS.read_text().splitlines():
        first, *words = line.split()
        if "-" in first and ":" not in first:
            begin, end = (int(text, 16) for text in first.split("-"))
            mapping = range(begin, end)
        elif first == "VmFlags:":
            found[mapping] = set(words)
    return found


def may_be_huge(where: int) -> bool:
    """Whether huge pages were asked for at an address; whether there are any is the system's affair."""
    return next("hg" in flags for mapping, flags in mappings().items() if where in mapping)
