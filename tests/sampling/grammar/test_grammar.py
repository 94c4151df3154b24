"""`Grammar`: what is refused before anything is compiled."""

from __future__ import annotations

import json

import pytest

from tiny_llm import ArgumentError, ArgumentTypeError
from tiny_llm.sampling.grammar import Grammar, read_response_format

from ...support.refusal import refused


def nested(depth: int) -> dict:
    schema: dict = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def chain(length: int) -> dict:
    """A schema in which `length` references lead one to the next."""
    definitions = {f"d{place}": {"$ref": f"#/$defs/d{place + 1}"} for place in range(length - 1)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{length - 1}": {"type": "null"}}}


itself: dict = {}
itself["items"] = itself

HOSTILE = {
    "an unknown keyword": ({"foo": 1}, "the keyword 'foo'"),
    "an unknown keyword inside": (
        {"properties": {"a": {"anyOf": [{"items": {"oops": 1}}]}}},
        "the keyword 'oops'",
    ),
    "options of llguidance": (
        {"type": "object", "x-guidance": {"lenient": True}},
        "the keyword 'x-guidance'",
    ),
    "a keyword that is not implemented": ({"not": {"type": "string"}}, "the keyword 'not'"),
    "depth": (nested(64), "nested deeper, expected at most 64"),
    "depth in a value": ({"const": json.loads("[" * 64 + "]" * 64)}, "nested deeper"),
    "a dict inside itself": (itself, "nested deeper"),
    "a circle of references": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "a circle"),
    "a reference to itself": ({"$ref": "#"}, "a circle"),
    "a long chain": (chain(257), "a chain of $ref"),
    "a reference to nothing": ({"$ref": "#/$defs/a"}, "expected a place that exists"),
    "a reference to the network": ({"$ref": "http://127.0.0.1/x"}, "expected a place in the same schema"),
    "a reference to a file": ({"$ref": "/etc/passwd"}, "expected a place in the same schema"),
    "a reference to what was not checked": (
        {"$ref": "#/default", "default": {"foo": 1}},
        "the place of a schema",
    ),
    "a reference that is no text": ({"$ref": 5}, "$ref 5"),
    "a long enum": ({"enum": list(range(10_001))}, "10001 entries of enums"),
    "many enums": ({"anyOf": [{"enum": list(range(1000))}] * 11}, "11000 entries of enums"),
    "size": ({"description": "x" * 65536}, "bytes, expected at most 65536"),
    "NaN": ({"maximum": float("nan")}, "a value that is not JSON"),
    "an object": ({"const": object()}, "a value that is not JSON"),
    "a name that is no text": ({"properties": {5: {}}}, "a name that is no text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused(name):
    schema, words = HOSTILE[name]
    with refused("schema", function=r"Grammar\.json_schema") as caught:
        Grammar.json_schema(schema)
    assert words in str(caught.value)


TEXTS = {
    "no JSON": ("{", "a text that is not JSON"),
    "a list": ("[]", "expected a JSON object"),
    "deep": ("[" * 30_000 + "]" * 30_000, "nested too deep"),
    "a huge number": ('{"maximum": ' + "9" * 5000 + "}", "not JSON"),
    "a lone surrogate": ('{"title": "\ud800"}', "no lone surrogates"),
    "size": (" " * 65537, "65537 bytes"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_of_a_schema_is_refused(name):
    text, words = TEXTS[name]
    with refused("schema", function=r"Grammar\.json_schema") as caught:
        Grammar.json_schema(text)
    assert words in str(caught.value)


def test_schemas_at_the_limits_are_accepted():
    for schema in (
        nested(63),
        chain(256),
        {"enum": list(range(10_000))},
        {"properties": {"foo": {}, "$ref": {}}},
    ):
        assert json.loads(Grammar.json_schema(schema).text) == schema
        assert Grammar.json_schema(json.dumps(schema)) == Grammar.json_schema(schema)


@pytest.mark.parametrize("make", [Grammar.regex, Grammar.lark])
def test_patterns_and_grammars_have_limits(make):
    assert make("x" * 65536).text == "x" * 65536
    for text in ("x" * 65537, "ü" * 32769, "\udfff"):
        with pytest.raises(ArgumentError, match=r"^Grammar\."):
            make(text)
    for wrong in (None, 5, b"x"):
        with pytest.raises(ArgumentTypeError, match=r"^Grammar\.(regex: pattern|lark: text): got "):
            make(wrong)


def test_a_format_is_a_grammar_or_a_schema():
    assert read_response_format({"type": "null"}) == Grammar.json_schema({"type": "null"})
    assert read_response_format(Grammar.json_object()) == Grammar.json_object()
    for wrong in ("json", 5, [{}]):
        with pytest.raises(
            ArgumentTypeError, match=r"^response_format: got .*, expected a Grammar or a JSON"
        ):
            read_response_format(wrong)
