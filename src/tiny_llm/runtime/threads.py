"""Threads for engines, which are used again: they never end.

MLX keeps what it made for a thread after the thread's end, on the CPU a thread of its own; and MLX for CUDA
does not survive the end of a thread that has used it.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = tuple[Callable[[], None], threading.Event]  # with what is set at its end

_idle: list["SimpleQueue[Job]"] = []
_changing = threading.Lock()
os.register_at_fork(after_in_child=_idle.clear)


def run_in_thread(function: Callable[[], None], ended: threading.Event) -> None:
    """Call `function` in a thread of its own, and then set `ended`."""
    with _changing:
        jobs = _idle.pop() if _idle else None
    if jobs is None:
        jobs = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="tiny-llm engine", daemon=True).start()
    jobs.put((function, ended))


def _work(jobs: "SimpleQueue[Job]") -> None:
    while True:
        function, ended = jobs.get()
        function()
        del function  # it may hold an engine
        with _changing:
            _idle.append(jobs)
        ended.set()
