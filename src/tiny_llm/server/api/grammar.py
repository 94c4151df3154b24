"""Structured output: which grammar an answer has to follow."""

import re

from ...errors import RefusedArgument
from ...sampling.grammar import Grammar
from ..errors import ApiError, bad_value
from .fields import AnswerFields, ResponseFormat, StructuredOutputs

FORMATS = ("text", "json_object", "json_schema")
SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$#&\-~])")  # in a regular expression
MAX_CHOICES = 1024


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
