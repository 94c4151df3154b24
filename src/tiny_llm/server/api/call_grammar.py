"""The grammar of answers that must be calls, in the format that `pieces` reads."""

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


def call_grammar(functions: Mapping[str, Mapping[str, Any]], several: bool) -> Grammar:
    """One call of one of these functions, or `several`; `functions` has the JSON schemas of arguments."""
    rules = []
    for number, (name, parameters) in enumerate(functions.items()):
        try:
            schema = Grammar.json_schema({"type": "object", **parameters}).source
        except RefusedArgument as error:
            sentence = f"tools: the parameters of {name}: {error.reason}"
            raise ApiError(400, sentence, param="tools", code="invalid_grammar") from error
        begin = f'{CALL}\n{{"name": {json.dumps(name)}, "arguments": '
        rules.append(
            f"call{number}: {json.dumps(begin)} %json {schema} {json.dumps('}' + chr(10) + END_OF_CALL)}"
        )
    call = " | ".join(f"call{number}" for number in range(len(rules)))
    start = 'start: call ("\\n" call)*' if several else "start: call"
    text = "\n".join([start, f"call: {call}", *rules])
    size = len(text.encode())
    if size > MAX_GRAMMAR_BYTES:
        sentence = (
            f"tools: the parameters of all functions together: got {size} bytes, "
            f"expected at most {MAX_GRAMMAR_BYTES}"
        )
        raise ApiError(400, sentence, param="tools", code="invalid_grammar")
    return Grammar("lark", text)
