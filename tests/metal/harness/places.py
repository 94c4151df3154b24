"""The file and line of our sources in the messages of a compiler, which gets one text with all headers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from metal_source import SOURCES

ROOT = Path(__file__).resolve().parents[3]
AROUND = 1  # lines before and after, by which a line is found again


def located(messages: str, text: Path, source: str) -> str:
    """The messages about `source`, which the compiler knows as the file `text`."""
    lines = source.splitlines()

    def place(match: re.Match[str]) -> str:
        return find(lines, int(match[1]) - 1) or match[0]

    return re.sub(rf"{re.escape(str(text))}:(\d+)", place, messages)


def find(lines: list[str], row: int) -> str | None:
    """FILE:LINE of the row, counted from 0, if one place of our sources has the same lines around it."""
    first, end = max(0, row - AROUND), row + AROUND + 1
    found = [
        (path, start + row - first + 1)
        for path in sorted(SOURCES.rglob("*"))
        if path.suffix in {".metal", ".h"}
        for start in starts(path.read_text().splitlines(), lines[first:end])
    ]
    if len(found) != 1:
        return None
    return f"{os.path.relpath(found[0][0], ROOT)}:{found[0][1]}"


def starts(lines: list[str], wanted: list[str]) -> list[int]:
    return [row for row in range(len(lines)) if lines[row : row + len(wanted)] == wanted]
