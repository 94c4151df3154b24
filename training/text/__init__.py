"""The phrases of the generator, which are the text files of this folder.

A sections file has `# name` headings, followed by one item per line. A blocks file has blocks of `field content` lines.
"""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


def read(file: str) -> list[str]:
    return (FOLDER / f"{file}.txt").read_text(encoding="utf-8").splitlines()


@cache
def sections(file: str) -> dict[str, list[str]]:
    """The lines under each heading; order is kept."""
    result: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in read(file):
        if line.startswith("# "):
            lines = result.setdefault(line[2:], [])
        elif line:
            lines.append(line)
    return result


@cache
def blocks(file: str) -> list[dict[str, str]]:
    """The blocks of a file of this folder."""
    return read_blocks(FOLDER / f"{file}.txt")


def read_blocks(file: Path) -> list[dict[str, str]]:
    """Blocks of lines, each with a field and its content."""
    result: list[dict[str, str]] = [{}]
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line:
            result.append({})
        else:
            field, _, content = line.partition(" ")
            result[-1][field] = content
    return [block for block in result if block]
