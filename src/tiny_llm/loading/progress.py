"""How whatever takes longer than a moment reports to its caller."""

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done, how much of it is done, and of how much, where that is known."""

    def __call__(self, task: str, done: int, total: int | None) -> None: ...


def silent(task: str, done: int, total: int | None) -> None:
    """For callers who do not ask."""
