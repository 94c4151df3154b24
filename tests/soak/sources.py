"""Which files of the program changed while it ran: then wrong answers may come from two versions of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import tiny_llm
from tiny_llm.runtime.extension import load_extension

Times = dict[Path, int]


def folders() -> list[Path]:
    """Those of the Python code with the built-in model, and of the native module."""
    return [Path(module.__file__).parent for module in (tiny_llm, load_extension()) if module.__file__]


def file_times(within: list[Path]) -> Times:
    """When each file was changed. What Python compiles is left out."""
    times: Times = {}
    for file in (file for folder in within for file in folder.rglob("*")):
        if file.is_file() and file.parent.name != "__pycache__":
            with suppress(FileNotFoundError):
                times[file] = file.stat().st_mtime_ns
    return times


def changed_files(before: Times, after: Times) -> list[str]:
    """The names of the files that are new, gone or changed."""
    return sorted(file.name for file in before.keys() | after.keys() if before.get(file) != after.get(file))
