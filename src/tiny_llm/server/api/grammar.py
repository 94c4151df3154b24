"""Structured output: which grammar an answer has to follow."""

from ..errors import bad_value, unsupported
from .fields import AnswerFields

FORMATS = ("text", "json_object", "json_schema")


def refuse_grammar(fields: AnswerFields) -> None:
    """400 for every format but plain text."""
    if fields.response_format is not None:
        if fields.response_format.type not in FORMATS:
            raise bad_value("response_format.type", f"one of {', '.join(FORMATS)}")
        if fields.response_format.type != "text":
            raise unsupported("response_format.type", "the engine has no grammars")
    if fields.structured_outputs is not None:
        raise unsupported("structured_outputs", "the engine has no grammars")
