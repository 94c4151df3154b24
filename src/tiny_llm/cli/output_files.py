"""Files that a command writes: checked before the work that fills them, and never half written."""

import argparse
import os
from pathlib import Path

from .exit_codes import Refusal


def output_file(name: str) -> Path:
    """The type of a flag that names a file to write."""
    path = Path(name)
    if name == "-":
        raise argparse.ArgumentTypeError("got '-', expected a file; /dev/stdout is one")
    if not os.path.isdir(path.parent) or os.path.isdir(path):  # which, unlike Path, take any name
        raise argparse.ArgumentTypeError(f"got {name!r}, expected a file in a folder that exists")
    return path


def svg_file(name: str) -> Path:
    if not name.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"got {name!r}, expected a name that ends in .svg")
    return output_file(name)


def check_writable(files: dict[str, Path | None]) -> None:
    """Refuse what could not be written in the end: the files of flags, by the names of these."""
    seen: dict[Path, str] = {}
    for flag, path in files.items():
        if path is None:
            continue
        target = path.resolve()
        if target in seen:
            raise Refusal(f"{flag}: got {path}, expected another file than that of {seen[target]}")
        seen[target] = flag
        try:
            if is_replaced(target):
                unfinished(target).touch()
                unfinished(target).unlink()
        except OSError as error:
            raise Refusal(f"{flag}: {path} cannot be written: {error.strerror}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears when it is complete; until then the one that it replaces stays."""
    target = path.resolve()
    if not is_replaced(target):
        target.write_text(text)
        return
    try:
        unfinished(target).write_text(text)
        unfinished(target).replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        unfinished(target).unlink(missing_ok=True)


def is_replaced(target: Path) -> bool:
    """Not a device or a pipe: these are written to as they are."""
    return target.is_file() or not target.exists()


def unfinished(target: Path) -> Path:
    """Where a file is written first: beside its place, on the same disk."""
    return target.with_name(f".{target.name}-{os.getpid()}")
