"""Checks of a JSON schema before it is compiled: limits, references, keywords without effect; closed objects.

llguidance refuses keywords that it knows and does not implement; it ignores those that it does not know.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ...errors import ArgumentError

MAX_DEPTH = 64  # levels of objects and lists
MAX_REFERENCES = 256  # in a chain in which each $ref leads to another
MAX_ENUM = 10_000  # entries of all enums together

# Keywords by what their values hold.
SCHEMA = {"items", "additionalItems", "additionalProperties"}
SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
SCHEMAS_BY_NAME = {"properties", "patternProperties", "$defs", "definitions"}
NO_SCHEMAS = {
    "type", "const", "enum", "$ref", "required", "minProperties", "maxProperties", "minItems", "maxItems",
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf",
    # annotations
    "$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly",
    "writeOnly",
}  # fmt: skip
KEYWORDS = SCHEMA | SCHEMA_LISTS | SCHEMAS_BY_NAME | NO_SCHEMAS
# Keywords of an object itself, besides those that apply other schemas to it.
OWN = {"properties", "patternProperties", "additionalProperties", "required", "minProperties"}


def check_depth(value: Any) -> None:
    """Refuse what is nested more than `MAX_DEPTH` deep, such as a dict that contains itself, and names that
    are no text."""
    open_values = [(value, 1)]
    while open_values:
        inner, depth = open_values.pop()
        if depth > MAX_DEPTH:
            raise _refused("a schema that is nested deeper", f"at most {MAX_DEPTH} levels")
        if isinstance(inner, Mapping):
            if not all(isinstance(name, str) for name in inner):
                raise _refused("a name that is no text", "a JSON schema")
            children: Iterator[Any] = iter(inner.values())
        elif isinstance(inner, list | tuple):
            children = iter(inner)
        else:
            continue
        open_values += [(child, depth + 1) for child in children]


def check_schema(root: dict[str, Any]) -> None:
    """Refuse unknown keywords, references that lead nowhere or in a circle, and too many entries of enums."""
    entries = 0
    schemas = list(subschemas(root))
    checked = {id(schema) for schema in schemas}
    places: dict[str, Any] = {}
    for schema in schemas:
        for keyword in schema:
            if keyword not in KEYWORDS:
                raise _refused(f"the keyword {keyword!r:.60}", f"only {', '.join(sorted(KEYWORDS))}")
        if "$ref" in schema:
            _check_reference(root, schema, checked, places)
        enum = schema.get("enum", [])
        entries += len(enum) if isinstance(enum, list) else 0
    if entries > MAX_ENUM:
        raise _refused(f"{entries} entries of enums", f"at most {MAX_ENUM}")


def subschemas(root: Any) -> Iterator[dict[str, Any]]:
    """The schema and all that are parts of it."""
    found = [root]
    while found:
        schema = found.pop()
        if not isinstance(schema, dict):
            continue  # true, false, or what llguidance refuses
        yield schema
        for keyword, value in schema.items():
            if keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
                found += value.values()
            elif keyword in SCHEMA_LISTS | SCHEMA:
                found += value if isinstance(value, list) else [value]


def _check_reference(
    root: dict[str, Any], schema: dict[str, Any], checked: set[int], places: dict[str, Any]
) -> None:
    """Follow a chain of references to the first schema that is none; `places` keeps what was found before."""
    for _ in range(MAX_REFERENCES):
        reference = schema["$ref"]
        if not isinstance(reference, str) or reference not in places:
            found = resolve(root, reference)
            if not isinstance(found, bool) and id(found) not in checked:
                raise _refused(f"$ref {reference!r:.60}", "the place of a schema")
            places[reference] = found
        target = places[reference]
        if not (isinstance(target, dict) and "$ref" in target):
            return
        schema = target
    raise _refused("a chain of $ref that is longer or a circle", f"at most {MAX_REFERENCES} references")


def resolve(root: dict[str, Any], reference: Any) -> Any:
    """The place in `root` that a $ref names."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        raise _refused(f"$ref {reference!r:.60}", "a place in the same schema, such as '#/$defs/name'")
    place: Any = root
    for name in reference.split("/")[1:]:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            raise _refused(f"$ref {reference!r:.60}", "a place that exists in the schema")
    return place


def _refused(got: str, expected: str) -> ArgumentError:
    return ArgumentError("Grammar.json_schema", "schema", got, expected)


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
