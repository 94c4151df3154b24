"""What an answer must look like: a value that is checked when it is made, and compiled for a model later."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...checks.types import check_text, check_type, kind
from ...errors import ArgumentError, ArgumentTypeError, calling
from .schema import MAX_DEPTH, check_depth, check_schema, close_objects

MAX_TEXT_BYTES = 64 * 2**10  # of a schema as JSON, of a pattern, of a Lark grammar

# For llguidance: spaces as json.dumps writes them. With free space, small models often write nothing else.
JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of an answer, for `response_format` of `LLM`; made by one of the class methods.

        Grammar.json_schema({"type": "object", "properties": {"age": {"type": "integer"}}})
        Grammar.regex("(yes|no)")

    JSON is written on one line, with a space after each comma and colon, as by `json.dumps`.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str
    preface: tuple[str, str] | None = None  # see `after`
    # Pairs of a name and a text such as <think>: rules of a Lark grammar, see `check_process.tag_rules`.
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json_object(cls) -> "Grammar":
        """Any JSON object."""
        return cls("json_schema", '{"type": "object"}')

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> "Grammar":
        """A JSON value that is valid by `schema`, an object or its text; an unknown keyword is refused.

        An object has no names beside its `properties`, unless `additionalProperties` allows them.
        """
        with calling("Grammar.json_schema", argument="schema"):
            check_type("", "", schema, Mapping | str, "a dict or JSON text")
            if isinstance(schema, str):
                schema = _parsed(_text(schema))
            check_depth(schema)
            try:
                text = json.dumps(schema, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ArgumentError("", "", f"a value that is not JSON ({error})", "a JSON schema") from error
            check_schema(json.loads(_text(text)))
        return cls("json_schema", text)

    @classmethod
    def regex(cls, pattern: str) -> "Grammar":
        """A text that the whole of `pattern` matches; without look-around and back-references."""
        with calling("Grammar.regex", argument="pattern"):
            return cls("regex", _text(pattern))

    @classmethod
    def lark(cls, text: str) -> "Grammar":
        """A text of a context-free grammar in llguidance's dialect of Lark; its first rule is `start`."""
        with calling("Grammar.lark", argument="text"):
            return cls("lark", _text(text))

    @property
    def source(self) -> str:
        """The text as llguidance gets it: a schema with closed objects and the style of its JSON."""
        if self.kind != "json_schema":
            return self.text
        schema = json.loads(self.text)
        close_objects(schema)
        return json.dumps({**schema, "x-guidance": JSON_STYLE})

    def after(self, begin: str, end: str) -> "Grammar":
        """The same after any text from `begin` to the first `end`, with up to two line ends in between."""
        return replace(self, preface=(begin, end))

    @property
    def fields(self) -> dict[str, Any]:
        """What is compiled, as arguments of `check_process.make_matcher`."""
        return {"kind": self.kind, "text": self.source, "preface": self.preface, "tags": self.tags}


def read_response_format(given: object) -> Grammar:
    """The grammar of an argument `response_format`: a `Grammar`, or a dict, which is a JSON schema."""
    if isinstance(given, Grammar):
        return given
    if not isinstance(given, Mapping):
        raise ArgumentTypeError("", "response_format", kind(given), "a Grammar or a JSON schema (dict)")
    return Grammar.json_schema(given)


def _text(text: str) -> str:
    check_text("", "", text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ArgumentError("", "", f"{text!r:.60}", "no lone surrogates") from error
    if size > MAX_TEXT_BYTES:
        raise ArgumentError("", "", f"{size} bytes", f"at most {MAX_TEXT_BYTES}")
    return text


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
    except RecursionError as error:
        raise ArgumentError("", "", "JSON that is nested too deep", f"at most {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise ArgumentError("", "", f"a text that is not JSON ({error})", "a JSON schema") from error
    if not isinstance(schema, dict):
        raise ArgumentError("", "", f"{text:.60}", "a JSON object")
    return schema
