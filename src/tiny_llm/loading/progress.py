"""How long tasks report their progress."""

from typing import Protocol


class Progress(Protocol):
    """Called with the name of the task, the amount done, and the total if it is known. From any thread."""

    def __call__(self, task: str, done: int, total: int | None) -> None: ...


def silent(task: str, done: int, total: int | None) -> None:
    """No report."""
