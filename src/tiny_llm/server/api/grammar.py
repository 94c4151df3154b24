"""Structured output: which grammar an answer has to follow, and the grammars of calls."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ...errors import RefusedArgument
from ...sampling.grammar import Grammar
from ..errors import ApiError, bad_value
from .fields import AnswerFields, ResponseFormat, StructuredOutputs
from .pieces import CALL, END_OF_CALL

FORMATS = ("text", "json_object", "json_schema")
SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$#&\-~])")  # in a regular expression
MAX_CHOICES = 1024
# Of all calls together; the parameters of one function have the limit of any schema. The tools are part of
# the prompt, so that more do not fit into most contexts.
MAX_GRAMMAR_BYTES = 2**20
TAGS = (("open", CALL), ("close", END_OF_CALL))
# The JSON schema of the arguments of each function; None for any object.
Functions = Mapping[str, Mapping[str, Any] | None]


def read_grammar(fields: AnswerFields) -> Grammar | None:
    """The grammar of `response_format` or `structured_outputs`; None if the answer is free."""
    form, outputs = fields.response_format, fields.structured_outputs
    if form is not None and form.type not in FORMATS:
        raise bad_value("response_format.type", f"one of {', '.join(FORMATS)}")
    if form is not None and form.type == "text":
        form = None
    if form is not None and outputs is not None:
        raise bad_value("structured_outputs", "none beside response_format")
    param = "response_format" if form is not None else "structured_outputs"
    if form is None and outputs is None:
        return None
    try:
        if form is not None:
            return _of_format(form)
        assert outputs is not None
        return _of_outputs(outputs)
    except RefusedArgument as error:
        raise ApiError(400, f"{param}: {error.reason}", param=param, code="invalid_grammar") from error


def _of_format(form: ResponseFormat) -> Grammar:
    if form.type == "json_object":
        return Grammar.json_object()
    if form.json_schema is None or form.json_schema.schema is None:
        raise bad_value("response_format.json_schema.schema", "a JSON schema")
    return Grammar.json_schema(form.json_schema.schema)


def _of_outputs(outputs: StructuredOutputs) -> Grammar:
    kinds = [name for name in outputs.__struct_fields__ if getattr(outputs, name) not in (None, False)]
    if len(kinds) != 1:
        raise bad_value("structured_outputs", f"one of {', '.join(outputs.__struct_fields__)}")
    if outputs.json is not None:
        return Grammar.json_schema(outputs.json)
    if outputs.regex is not None:
        return Grammar.regex(outputs.regex)
    if outputs.grammar is not None:
        return Grammar.lark(outputs.grammar)
    if outputs.choice is not None:
        if not 0 < len(outputs.choice) <= MAX_CHOICES or not all(outputs.choice):
            raise bad_value("structured_outputs.choice", f"1 to {MAX_CHOICES} texts that are not empty")
        return Grammar.regex("|".join(SPECIAL.sub(r"\\\1", text) for text in outputs.choice))
    return Grammar.json_object()


def only_calls(functions: Functions, several: bool) -> Grammar:
    """One call of one of these functions, or `several`."""
    return _grammar(f"start: {_calls(several)}", functions)


def text_and_calls(functions: Functions) -> Grammar:
    """Any text, in which each call is one of these, from its begin on."""
    return _grammar("start: (to_open call)* TEXT", functions)


def calls_or_json(functions: Functions, several: bool, content: Grammar) -> Grammar:
    """Calls and nothing else, or the JSON of `content`."""
    return _grammar(f"start: {_calls(several)} | content\ncontent: %json {content.source}", functions)


def _calls(several: bool) -> str:
    return 'open call ("\\n" open call)*' if several else "open call"


def _grammar(start: str, functions: Functions) -> Grammar:
    """With the rule `call` for a call after its begin."""
    rules = []
    for number, (name, parameters) in enumerate(functions.items()):
        begin = f'\n{{"name": {json.dumps(name)}, "arguments": '
        schema = _schema(name, parameters)
        rules.append(f'call{number}: {json.dumps(begin)} %json {schema} "}}\\n" close')
    call = " | ".join(f"call{number}" for number in range(len(rules)))
    text = "\n".join([start, f"call: {call}", *rules])
    size = len(text.encode())
    if size > MAX_GRAMMAR_BYTES:
        sentence = (
            f"tools: the parameters of all functions together: got {size} bytes, "
            f"expected at most {MAX_GRAMMAR_BYTES}"
        )
        raise ApiError(400, sentence, param="tools", code="invalid_grammar")
    return Grammar("lark", text, tags=TAGS)


def _schema(name: str, parameters: Mapping[str, Any] | None) -> str:
    if parameters is None:
        return Grammar.json_object().source
    try:
        return Grammar.json_schema({"type": "object", **parameters}).source
    except RefusedArgument as error:
        sentence = f"tools: the parameters of {name}: {error.reason}"
        raise ApiError(400, sentence, param="tools", code="invalid_grammar") from error
