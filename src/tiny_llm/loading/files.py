"""Files of a model's folder: which there are, that they lie inside of it, and their JSON."""

import json
from pathlib import Path
from typing import Any, NoReturn

from .errors import LoadError

MEBIBYTE = 2**20
POINTER = b"version https://git-lfs"


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name, all links resolved; None if the folder has no such entry."""
    path = folder / name
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError as error:
        if not path.is_symlink():
            return None
        raise LoadError(f"{name}: is a link that leads nowhere; download the model again") from error
    except (OSError, RuntimeError) as error:  # no permission; a link to itself
        raise LoadError(f"{name}: cannot be read: {error}") from error
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise LoadError(f"{name}: leads out of the model's folder, to {target}; only files inside are read")
    if not target.is_file():
        raise LoadError(f"{name}: is no ordinary file")
    return target


def need_file(folder: Path, name: str, advice: str) -> Path:
    """The same for a file that must be there."""
    path = find_file(folder, name)
    if path is None:
        raise LoadError(f"{name}: is not in {folder}; {advice}")
    return path


def read_bytes(path: Path, name: str, most: int) -> bytes:
    """The content of a file of at most `most` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise LoadError(f"{name}: cannot be read: {error.strerror}") from error
    check_beginning(data, name)
    if len(data) > most:
        raise LoadError(f"{name}: is longer than {most // MEBIBYTE} MiB, which no model needs")
    return data


def read_text(path: Path, name: str, most: int) -> str:
    """The text of such a file."""
    try:
        return read_bytes(path, name, most).decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{name}: is not UTF-8 text; the file is damaged") from error


def check_beginning(data: bytes, name: str) -> None:
    """Name the two things that a failed download leaves in the place of any file."""
    if not data:
        raise LoadError(f"{name}: is empty; download the model again")
    if data.startswith(POINTER):
        raise LoadError(f"{name}: is a Git LFS pointer, not the file itself; run 'git lfs pull' there")


def read_object(path: Path, name: str, most: int = MEBIBYTE) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_object(read_text(path, name, most), name)


def parse_object(text: str, name: str) -> dict[str, Any]:
    """A JSON object in which every key and every number has one meaning."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{name}: is not valid JSON ({error}); the file is damaged") from error
    if not isinstance(value, dict):
        raise LoadError(f"{name}: got a JSON {type(value).__name__}, expected an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the key {name!r} is there twice")
        result[name] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _roots(folder: Path) -> list[Path]:
    """Where a file of the folder may lie: the hub's cache links to blobs, of one model or shared by all."""
    folder = folder.resolve()
    model = folder.parent.parent
    if folder.parent.name == "snapshots" and model.name.startswith("models--"):
        return [folder, model / "blobs", model.parent / "blobs"]
    return [folder]
