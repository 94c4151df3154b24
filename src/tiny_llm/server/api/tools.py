"""Tools: functions that the model may ask the client to call."""

from collections.abc import Sequence
from typing import Any

from ...sampling.grammar import Grammar
from ..errors import bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields, Function, Tool
from .grammar import calls_or_json, only_calls, text_and_calls

CHOICES = ("auto", "none", "required")


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
