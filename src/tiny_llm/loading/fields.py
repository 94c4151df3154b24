"""Typed access to a JSON object in which anything may stand: each reader names the field that is wrong."""

from typing import Any

from .errors import LoadError


class Fields:
    """The fields of an object from the file `name`."""

    def __init__(self, values: dict[str, Any], name: str):
        self.values = values
        self.name = name

    def get(self, key: str, default: Any = None) -> Any:
        """As it stands there; null is as good as missing."""
        value = self.values.get(key)
        return default if value is None else value

    def integer(self, key: str, least: int, most: int) -> int:
        value = self.get(key)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, above: float, most: float) -> float:
        value = self.get(key)
        if type(value) not in (int, float) or not above < value <= most:
            raise self.wrong(key, f"a number above {above:g}, at most {most:g}")
        return float(value)

    def boolean(self, key: str) -> bool:
        value = self.get(key)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def choice(self, key: str, allowed: tuple[int, ...]) -> int:
        value = self.get(key)
        if type(value) is not int or value not in allowed:
            raise self.wrong(key, " or ".join(map(str, allowed)))
        return value

    def object(self, key: str) -> "Fields":
        """An object inside; messages name its fields with a dot."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(value, f"{self.name}: {key}")

    def list(self, key: str) -> list[Any]:
        """A list; an empty one where the field is missing."""
        value = self.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id or a list of them; none where the field is missing."""
        value = self.get(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int and token >= 0 for token in ids):
            raise self.wrong(key, "a token id or a list of them")
        return tuple(ids)

    def text(self, key: str) -> str | None:
        """Text, or None where the field is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def refuse_code(self, *keys: str) -> None:
        """Other loaders would run the Python files that such a field names."""
        for key in keys:
            if key in self.values:
                raise self.wrong(key, "none: code that comes with a model is never run")

    def wrong(self, key: str, expected: str) -> LoadError:
        value = self.values.get(key)
        got = "nothing" if value is None else repr(value)[:80]
        return LoadError(f"{self.name}: {key}: got {got}, expected {expected}")
