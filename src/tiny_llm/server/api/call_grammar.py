"""The grammars of answers that may or must be calls, in the format that `pieces` reads."""

import json
from collections.abc import Mapping
from typing import Any

from ...errors import RefusedArgument
from ...sampling.grammar import Grammar
from ..errors import ApiError
from .pieces import CALL, END_OF_CALL

# Of all calls together; the parameters of one function have the limit of any schema. The tools are part of
# the prompt, so that more do not fit into most contexts.
MAX_GRAMMAR_BYTES = 2**20
TAGS = (("open", CALL), ("close", END_OF_CALL))

# The JSON schema of the arguments of each function; None for any object.
Functions = Mapping[str, Mapping[str, Any] | None]


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
