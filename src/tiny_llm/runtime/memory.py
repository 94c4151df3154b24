"""Memory: MLX's errors about it, recognised by their texts, and what was freed goes back to the system."""

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import OutOfMemoryError
from .gpu import gpu_facts

TEXTS = (
    r"\[malloc\] Unable to allocate (?P<bytes>\d+) bytes",  # Metal and CUDA
    r"\[metal::malloc\] Attempting to allocate (?P<bytes>\d+) bytes",
    r"cu(da)?[A-Z]\w*\(.*\) failed: out of memory",  # a call of CUDA's runtime or driver
    r"cublas\w+\(.*\) failed with code: 3\.",  # CUBLAS_STATUS_ALLOC_FAILED
    r"\[METAL\] Command buffer execution failed: .*OutOfMemory",
)


@contextmanager
def memory_errors() -> Iterator[None]:
    """Raise OutOfMemoryError in the place of MLX's RuntimeError about memory."""
    try:
        yield
    except RuntimeError as error:
        if out_of_memory(str(error), None) is None:
            raise
        found = out_of_memory(str(error), gpu_facts())
        assert found is not None
        raise found from error


def out_of_memory(text: str, gpu: Mapping[str, Any] | None) -> OutOfMemoryError | None:
    """The error that a text of MLX stands for; None for a text about something else."""
    for pattern in TEXTS:
        if found := re.search(pattern, text, re.DOTALL):
            number = found.groupdict().get("bytes")
            requested = None if number is None else int(number)
            facts = gpu or {}
            return OutOfMemoryError(requested, facts.get("name"), facts.get("memory_bytes"))
    return None


def return_freed_memory() -> None:
    """Give whole free pages back to the system, for a process that runs for days.

    glibc does so by itself only at the end of each heap: after a burst of requests a process would stay as
    large as the burst. It takes some milliseconds, and a tenth of a second for each gigabyte that goes back,
    in which other threads may wait for memory. Other C libraries have no such function: nothing happens.
    """
    trim: Callable[[int], Any] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
