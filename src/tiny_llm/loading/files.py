"""The files of a model's folder, none of them trusted: where they lie, their text, their JSON fields."""

import json
from pathlib import Path
from typing import Any, NoReturn

from ..errors import LoadError

MEBIBYTE = 2**20
POINTER = b"version https://git-lfs"


def find_file(folder: Path, name: str) -> Path | None:
    """The path of a file with all links resolved; None if the folder has no such entry."""
    path = folder / name
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError as error:
        if not path.is_symlink():
            return None
        raise LoadError(f"{name}: is a broken link; download the model again") from error
    except (OSError, RuntimeError) as error:  # no permission; a link to itself
        raise LoadError(f"{name}: cannot be read: {error}") from error
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise LoadError(f"{name}: links out of the model's folder, to {target}; only files inside are read")
    if not target.is_file():
        raise LoadError(f"{name}: is not a regular file")
    return target


def require_file(folder: Path, name: str, advice: str) -> Path:
    """The resolved path of a file that must exist."""
    path = find_file(folder, name)
    if path is None:
        raise LoadError(f"{name}: is not in {folder}; {advice}")
    return path


def read_text(path: Path, name: str, max_bytes: int) -> str:
    """The text of a UTF-8 file of at most `max_bytes` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise LoadError(f"{name}: cannot be read: {error.strerror}") from error
    check_beginning(data, name)
    if len(data) > max_bytes:
        raise LoadError(f"{name}: is longer than {max_bytes // MEBIBYTE} MiB, which no model needs")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{name}: is not UTF-8 text; the file is damaged") from error


def check_beginning(data: bytes, name: str) -> None:
    """LoadError for an empty file and for a Git LFS pointer, which failed downloads leave."""
    if not data:
        raise LoadError(f"{name}: is empty; download the model again")
    if data.startswith(POINTER):
        raise LoadError(f"{name}: is a Git LFS pointer, not the file itself; run 'git lfs pull' there")


def read_object(path: Path, name: str, max_bytes: int = MEBIBYTE) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_object(read_text(path, name, max_bytes), name)


def parse_object(text: str, name: str) -> dict[str, Any]:
    """A JSON object without duplicate keys, NaN and infinities."""
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
            raise ValueError(f"duplicate key {name!r}")
        result[name] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


class Fields:
    """The fields of an object from the file `name`."""

    def __init__(self, values: dict[str, Any], name: str):
        self.values = values
        self.name = name

    def get(self, key: str, default: Any = None) -> Any:
        """The unchecked value; null counts as missing."""
        value = self.values.get(key)
        return default if value is None else value

    def integer(self, key: str, minimum: int, maximum: int) -> int:
        value = self.get(key)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.error(key, f"a whole number from {minimum} to {maximum}")
        return value

    def number(self, key: str, exclusive_minimum: float, maximum: float) -> float:
        value = self.get(key)
        if type(value) not in (int, float) or not exclusive_minimum < value <= maximum:
            raise self.error(key, f"a number above {exclusive_minimum:g}, at most {maximum:g}")
        return float(value)

    def boolean(self, key: str) -> bool:
        value = self.get(key)
        if type(value) is not bool:
            raise self.error(key, "true or false")
        return value

    def choice(self, key: str, allowed: tuple[int, ...]) -> int:
        value = self.get(key)
        if type(value) is not int or value not in allowed:
            raise self.error(key, " or ".join(map(str, allowed)))
        return value

    def object(self, key: str) -> "Fields":
        """An object inside; messages name its fields with a dot."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return Fields(value, f"{self.name}: {key}")

    def list(self, key: str) -> list[Any]:
        """A list; an empty one where the field is missing."""
        value = self.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "a list")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id or a list of them; none where the field is missing."""
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int and token >= 0 for token in ids):
            raise self.error(key, "a token id or a list of them")
        return tuple(ids)

    def text(self, key: str) -> str | None:
        """A str, or None if the field is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "text")
        return value

    def refuse_code(self, *keys: str) -> None:
        """LoadError for fields that name Python files, which other loaders would run."""
        for key in keys:
            if key in self.values:
                raise self.error(key, "none: code that comes with a model is never run")

    def error(self, key: str, expected: str) -> LoadError:
        value = self.values.get(key)
        got = "nothing" if value is None else repr(value)[:80]
        return LoadError(f"{self.name}: {key}: got {got}, expected {expected}")


def _roots(folder: Path) -> list[Path]:
    """The folders that links may lead to: in the hub's cache also the blobs, per model or shared."""
    folder = folder.resolve()
    model = folder.parent.parent
    if folder.parent.name == "snapshots" and model.name.startswith("models--"):
        return [folder, model / "blobs", model.parent / "blobs"]
    return [folder]
