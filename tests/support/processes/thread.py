"""Work in another thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_a_thread(work: Callable[[], Any]) -> Any:
    """The result of `work` in a new thread, which then ends."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
