"""Objects have the names of their schema only: where others may follow, small models write them endlessly."""

from collections.abc import Iterator
from typing import Any

from .schema import resolve, subschemas

# Keywords of an object itself, besides those that apply other schemas to it.
OWN = {"properties", "patternProperties", "additionalProperties", "required", "minProperties"}


def close_objects(root: dict[str, Any]) -> None:
    """Add `additionalProperties: false` to schemas that have `properties`, in place.

    Schemas that describe one object together stay as they are, such as those of `allOf`: each would exclude
    the names of the others. So do those that require names which they do not list.
    """
    schemas = list(subschemas(root))
    joined: set[int] = set()
    for schema in schemas:
        count = bool(OWN & schema.keys()) + len(_list(schema, "allOf"))
        count += sum(keyword in schema for keyword in ("anyOf", "oneOf", "$ref"))
        if count > 1:
            _join(root, schema, joined)
    for schema in schemas:
        if id(schema) not in joined and "additionalProperties" not in schema and _lists_all(schema):
            schema["additionalProperties"] = False


def _applied(root: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas that describe the same value."""
    found = [each for keyword in ("allOf", "anyOf", "oneOf") for each in _list(schema, keyword)]
    if "$ref" in schema:
        found.append(resolve(root, schema["$ref"]))
    yield from (each for each in found if isinstance(each, dict))


def _join(root: dict[str, Any], schema: dict[str, Any], joined: set[int]) -> None:
    """Add a schema and all that describe the same value."""
    found = [schema]
    while found:
        schema = found.pop()
        if id(schema) not in joined:
            joined.add(id(schema))
            found += _applied(root, schema)


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    """The schemas of a keyword; none where it has no list, which llguidance refuses."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _lists_all(schema: dict[str, Any]) -> bool:
    """Whether the object can be made of its `properties` alone."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list) or "minProperties" in schema:
        return False
    return all(isinstance(name, str) and name in properties for name in required)
