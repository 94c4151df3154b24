"""Output files, checked before the work starts and replaced only by complete files; JSON on stdout."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from .exit_codes import Refusal


def print_json(record: dict[str, Any], *, indent: int | None = None) -> None:
    """Print and flush an object; characters are escaped only if the output's encoding may lack them."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    has_all = encoding.lower().replace("-", "").startswith("utf")
    print(json.dumps(record, ensure_ascii=not has_all, indent=indent), flush=True)


def output_file(name: str) -> Path:
    """An argparse type: a file to write."""
    path = Path(name)
    if name == "-":
        raise argparse.ArgumentTypeError("got '-', expected a file; /dev/stdout is standard output")
    if not os.path.isdir(path.parent) or os.path.isdir(path):  # pathlib fails on some names
        raise argparse.ArgumentTypeError(f"got {name!r}, expected a file in a folder that exists")
    return path


def svg_file(name: str) -> Path:
    if not name.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"got {name!r}, expected a name that ends in .svg")
    return output_file(name)


def check_writable(files: dict[str, Path | None]) -> None:
    """Refuse files, given by the names of their flags, that could not be written at the end."""
    seen: dict[Path, str] = {}
    for flag, path in files.items():
        if path is None:
            continue
        target = path.resolve()
        if target in seen:
            raise Refusal(f"{flag}: got {path}, expected a different file than {seen[target]}")
        seen[target] = flag
        try:
            if is_replaced(target):
                unfinished(target).touch()
                unfinished(target).unlink()
        except OSError as error:
            raise Refusal(f"{flag}: {path} cannot be written: {error.strerror}") from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears when it is complete; an older file stays until then."""
    target = path.resolve()
    data = content.encode() if isinstance(content, str) else content
    if not is_replaced(target):
        target.write_bytes(data)
        return
    try:
        unfinished(target).write_bytes(data)
        unfinished(target).replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        unfinished(target).unlink(missing_ok=True)


def is_replaced(target: Path) -> bool:
    """Whether `target` is a regular file or new; devices and pipes are written directly."""
    return target.is_file() or not target.exists()


def unfinished(target: Path) -> Path:
    """The temporary file: in the same folder, so on the same disk."""
    return target.with_name(f".{target.name}-{os.getpid()}")
