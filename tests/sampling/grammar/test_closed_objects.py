"""Which names an answer may write in the objects of a schema."""

from __future__ import annotations

import json

import pytest

from tiny_llm.sampling.grammar import Grammar, start_grammar

from ...support.serving.grammars import follows

A, B = ({"type": "object", "properties": {name: {"type": "integer"}}} for name in "ab")
NESTED = {"type": "object", "properties": {"list": {"type": "array", "items": A}}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
LIST = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        (A, ['{"a": 1}', "{}"], ['{"a": 1, "x": 2}', '{"x": 2}']),
        ({"type": "object", "properties": {}}, ["{}"], ['{"x": 2}']),
        (NESTED, ['{"list": [{"a": 1}]}'], ['{"list": [{"x": 1}]}', '{"list": [], "x": 1}']),
        ({"anyOf": [A, B]}, ['{"a": 1}', '{"b": 1}'], ['{"a": 1, "b": 1}', '{"x": 1}']),
        (
            {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
            ['{"next": {"next": {}}}'],
            ['{"next": {"x": 1}}'],
        ),
        ({"allOf": [A]}, ['{"a": 1}'], ['{"x": 1}']),
        # Open: the schema says so, has no list of names, or describes the object in several places.
        ({**A, "additionalProperties": True}, ['{"a": 1, "x": 2}'], ['{"a": "x"}']),
        ({**A, "additionalProperties": {"type": "null"}}, ['{"x": null}'], ['{"x": 1}']),
        ({"type": "object"}, ['{"x": {"y": 1}}'], ["[]"]),
        ({"allOf": [A, B]}, ['{"a": 1, "b": 1}'], ['{"a": "x", "b": 1}']),
        ({**A, "allOf": [B]}, ['{"a": 1, "b": 1}'], ['{"b": "x"}']),
        ({"allOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}}, ['{"a": 1, "b": 1}'], ['{"a": "x"}']),
        ({**A, "required": ["a", "z"]}, ['{"a": 1, "z": 2}'], ['{"a": 1}']),
    ],
)
def test_an_object_has_the_names_of_its_schema(schema: dict, allowed: list[str], refused: list[str]) -> None:
    grammar = Grammar.json_schema(schema)
    assert [text for text in allowed + refused if follows(grammar, text)] == allowed
    assert json.loads(grammar.text) == schema


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "properties", "required"])
def test_a_keyword_of_a_wrong_type_is_refused_by_the_compiler(keyword: str, tokenizer) -> None:
    with pytest.raises(ValueError, match="does not compile"):
        start_grammar(tokenizer, Grammar.json_schema({keyword: 5}))
