"""Packages that only some commands need: the extras of pyproject.toml."""

from collections.abc import Iterator
from contextlib import contextmanager

from .exit_codes import Failure


@contextmanager
def optional_packages(extra: str) -> Iterator[None]:
    """A block of imports; a missing package is a Failure with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        advice = f"install it with pip install 'tiny-llm[{extra}]'"
        raise Failure(f"{missing.name}: not installed; {advice}") from missing
