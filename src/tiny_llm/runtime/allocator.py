"""Memory that was freed, and that the C library keeps for the process."""

import ctypes
from collections.abc import Callable
from typing import Any


def return_freed_memory() -> None:
    """Give whole free pages back to the system, for a process that runs for days.

    glibc does so by itself only at the end of each heap: after a burst of requests a process would stay as
    large as the burst. It takes some milliseconds, and a tenth of a second for each gigabyte that goes back,
    in which other threads may wait for memory. Other C libraries have no such function: nothing happens.
    """
    trim: Callable[[int], Any] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
