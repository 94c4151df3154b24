"""The C library's memory: how much of what was freed a process keeps."""

import ctypes
import os

M_ARENA_MAX = -8  # glibc's number
ARENAS = 2


def share_freed_memory() -> None:
    """Let threads take memory that others have freed, for a process that runs for days.

    glibc gives each thread a heap of its own, up to 8 for a CPU, and each heap keeps the most that it ever
    had. Call it before threads start. Nothing happens with other C libraries, or where MALLOC_ARENA_MAX says
    what to do.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit is not None:
        limit(M_ARENA_MAX, ARENAS)
