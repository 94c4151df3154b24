"""C++ and Metal code with some places emptied, and filled in again.

A place is a function, or the lines between `// Region NAME` and `// End of region NAME`. An emptied one
does not compile: it has an #error line that says what to write.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Span(NamedTuple):
    """Lines of a file, from 0: the signature or first marker, what is inside, the last brace or marker."""

    start: int
    first: int
    end: int


def emptied(source: str, tasks: Mapping[str, str]) -> str:
    """`source` with the inside of each place of `tasks`, a name -> the message of its #error, replaced."""
    for name, message in tasks.items():
        source = _replaced(source, name, [f'#error "{message}"'])
    return source


def unwritten(source: str, tasks: Mapping[str, str]) -> list[str]:
    """The places of `tasks` that are still empty."""
    return [
        name
        for name, message in tasks.items()
        if has(source, name) and any(line.strip() == f'#error "{message}"' for line in inside(source, name))
    ]


def filled(source: str, right: str, tasks: Mapping[str, str]) -> str:
    """`source` with the code of `right` in each place that is still empty."""
    for name in unwritten(source, tasks):
        source = _replaced(source, name, inside(right, name))
    return source


def written(source: str, name: str) -> str:
    """The whole text of a place."""
    lines = source.splitlines()
    span = _span(lines, name)
    return "\n".join(lines[span.start : span.end + 1]) + "\n"


def has(source: str, name: str) -> bool:
    return len(_spans(source.splitlines(), name)) == 1


def inside(source: str, name: str) -> list[str]:
    """The lines of a place without its signature or markers."""
    lines = source.splitlines()
    span = _span(lines, name)
    return lines[span.first : span.end]


def _replaced(source: str, name: str, new: list[str]) -> str:
    lines = source.splitlines()
    span = _span(lines, name)
    return "\n".join([*lines[: span.first], *new, *lines[span.end :]]) + "\n"


def _span(lines: list[str], name: str) -> Span:
    spans = _spans(lines, name)
    if len(spans) != 1:
        raise ValueError(f"{name}: got {len(spans)} functions or regions of this name, expected one")
    return spans[0]


def _spans(lines: list[str], name: str) -> list[Span]:
    return [*_regions(lines, name), *_functions(lines, name)]


def _regions(lines: list[str], name: str) -> list[Span]:
    starts = [row for row, line in enumerate(lines) if re.match(rf"\s*// Region {name}\b", line)]
    ends = [row for row, line in enumerate(lines) if re.match(rf"\s*// End of region {name}\b", line)]
    return [Span(start, start + 1, end) for start, end in zip(starts, ends, strict=True)]


def _functions(lines: list[str], name: str) -> list[Span]:
    """Functions of this name: a type before the name, the brace at the end of a line, and one below it."""
    signature = re.compile(rf"(\s*)(?!return\b)(?:[\w:<>*&]+ )+{name}\(")
    spans = []
    for row, line in enumerate(lines):
        if not (match := signature.match(line)):
            continue
        brace = next(at for at in range(row, len(lines)) if lines[at].endswith(("{", ";", "}")))
        if lines[brace].endswith("{"):
            start = row - lines[row - 1].lstrip().startswith("template")
            end = next(at for at in range(brace, len(lines)) if lines[at] == f"{match[1]}}}")
            spans.append(Span(start, brace + 1, end))
    return spans
