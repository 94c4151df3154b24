"""What an answer has to follow: the grammar of its format, and the tools that it may or must call."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...sampling.grammar import Grammar
from ..errors import ApiError, bad_value, checking, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import AnswerFields, ChatFields, Function, ResponseFormat, StructuredOutputs, Tool
from .pieces import CALL, END_OF_CALL

CHOICES = ("auto", "none", "required")  # of tools
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
    if form is not None and form.type != "text":
        if outputs is not None:
            raise bad_value("structured_outputs", "none beside response_format")
        with checking("response_format", "invalid_grammar"):
            return _of_format(form)
    if outputs is not None:
        with checking("structured_outputs", "invalid_grammar"):
            return _of_outputs(outputs)
    return None


def _of_format(form: ResponseFormat) -> Grammar:
    if form.type == "json_object":
        return Grammar.json_object()
    if form.json_schema is None or form.json_schema.schema is None:
        raise bad_value("response_format.json_schema.schema", "a JSON schema")
    return Grammar.json_schema(form.json_schema.schema)


def _of_outputs(outputs: StructuredOutputs) -> Grammar:
    given = {name: getattr(outputs, name) for name in outputs.__struct_fields__}
    kinds = [name for name, value in given.items() if value not in (None, False)]
    if len(kinds) != 1:
        raise bad_value("structured_outputs", f"one of {', '.join(given)}")
    (kind,) = kinds
    match kind:
        case "json":
            return Grammar.json_schema(given[kind])
        case "regex":
            return Grammar.regex(given[kind])
        case "grammar":
            return Grammar.lark(given[kind])
        case "json_object":
            return Grammar.json_object()
    choices = given["choice"]
    if not 0 < len(choices) <= MAX_CHOICES or not all(choices):
        raise bad_value("structured_outputs.choice", f"1 to {MAX_CHOICES} texts that are not empty")
    return Grammar.regex("|".join(SPECIAL.sub(r"\\\1", text) for text in choices))


def read_tools(fields: ChatFields, model: ServedModel, settings: Settings) -> list[dict[str, Any]] | None:
    """The tools as chat templates read them; None without tools, or if the request forbids calls."""
    if isinstance(fields.tool_choice, str) and fields.tool_choice not in CHOICES:
        raise bad_value("tool_choice", f"one of {', '.join(CHOICES)}, or a function")
    if not fields.tools:
        if is_forced(fields):
            raise bad_value("tool_choice", "tools to choose from")
        return None
    if len(fields.tools) > settings.max_tools:
        raise bad_value("tools", f"at most {settings.max_tools}")
    tools = [_read(f"tools[{index}]", tool) for index, tool in enumerate(fields.tools)]
    if fields.tool_choice == "none":
        return None
    if not model.takes_tools:
        raise unsupported("tools", "the model's chat template has no tools")
    return tools


def functions_of(tools: Sequence[Any] | None, types: Sequence[str | None]) -> list[Tool] | None:
    """The tools of another interface, which must have one of these types, as those of a chat."""
    read = []
    for index, tool in enumerate(tools or ()):
        if tool.type not in types:
            sentence = f"expected {types[-1]}: this server has no tools of its own"
            raise unsupported(f"tools[{index}].type", sentence)
        arguments = {name: getattr(tool, name) for name in Function.__struct_fields__}
        read.append(Tool(type="function", function=Function(**arguments)))
    return read or None


def named_function(name: str | None) -> dict[str, Any]:
    """As `tool_choice` of a chat."""
    return {"type": "function", "function": {"name": name}}


def is_forced(fields: ChatFields) -> bool:
    """Whether the answer must be a call."""
    return fields.tool_choice == "required" or isinstance(fields.tool_choice, dict)


def constrain_calls(
    fields: ChatFields, tools: list[dict[str, Any]], content: Grammar | None
) -> Grammar | None:
    """The grammar of an answer with these tools, of which `content` is that of an answer without a call.

    Calls of strict functions follow their schemas, and so do those of any function if a call is required.
    """
    several = fields.parallel_tool_calls is not False
    strict = {tool.function.name for tool in fields.tools or () if tool.function.strict}
    functions = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if is_forced(fields):
        if content is not None:
            raise bad_value("tool_choice", "auto or none beside a grammar for the answer")
        if isinstance(fields.tool_choice, dict):
            name = _named(fields.tool_choice)
            if name not in functions:
                raise bad_value("tool_choice.function.name", "the name of one of the tools")
            functions, several = {name: functions[name]}, False
        return only_calls(functions, several)
    optional = {name: schema if name in strict else None for name, schema in functions.items()}
    if content is None:
        return text_and_calls(optional) if strict else None
    return calls_or_json(optional, several, content) if content.kind == "json_schema" else content


def _named(choice: dict[str, Any]) -> str:
    named = choice.get("function")
    name = named.get("name") if isinstance(named, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        raise bad_value("tool_choice", 'an object such as {"type": "function", "function": {"name": ...}}')
    return name


def _read(path: str, tool: Tool) -> dict[str, Any]:
    if tool.type != "function":
        raise bad_value(f"{path}.type", "function")
    function = tool.function
    parameters = function.parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        raise bad_value(f"{path}.function.parameters.type", "object")
    if not isinstance(parameters.get("properties", {}), dict):
        raise bad_value(f"{path}.function.parameters.properties", "an object")
    described = {"name": function.name, "description": function.description or "", "parameters": parameters}
    return {"type": "function", "function": described}


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
        sizes = f"got {size} bytes, expected at most {MAX_GRAMMAR_BYTES}"
        sentence = f"tools: the parameters of all functions together: {sizes}"
        raise ApiError(400, sentence, param="tools", code="invalid_grammar")
    return Grammar("lark", text, tags=TAGS)


def _schema(name: str, parameters: Mapping[str, Any] | None) -> str:
    if parameters is None:
        return Grammar.json_object().source
    with checking("tools", "invalid_grammar", about=f"the parameters of {name}: "):
        return Grammar.json_schema({"type": "object", **parameters}).source
