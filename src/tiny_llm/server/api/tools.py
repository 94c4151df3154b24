"""Tools: functions that the model may ask the client to call."""

from typing import Any

from ..errors import bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields, Tool

CHOICES = ("auto", "none")


def read_tools(fields: ChatFields, model: ServedModel, settings: Settings) -> list[dict[str, Any]] | None:
    """The tools as chat templates read them; None without tools, or if the request forbids calls."""
    if fields.tool_choice is not None and fields.tool_choice not in CHOICES:
        raise unsupported("tool_choice", f"expected one of {', '.join(CHOICES)}")
    if not fields.tools:
        return None
    if len(fields.tools) > settings.max_tools:
        raise bad_value("tools", f"at most {settings.max_tools}")
    tools = [_read(f"tools[{index}]", tool) for index, tool in enumerate(fields.tools)]
    if fields.tool_choice == "none":
        return None
    if fields.parallel_tool_calls is False:
        raise unsupported("parallel_tool_calls", "the number of calls in an answer is not limited")
    if not model.takes_tools:
        raise unsupported("tools", "the model's chat template has no tools")
    return tools


def _read(place: str, tool: Tool) -> dict[str, Any]:
    if tool.type != "function":
        raise bad_value(f"{place}.type", "function")
    function = tool.function
    if function.strict:
        raise unsupported(f"{place}.function.strict", "arguments are not constrained to the schema")
    parameters = function.parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        raise bad_value(f"{place}.function.parameters.type", "object")
    if not isinstance(parameters.get("properties", {}), dict):
        raise bad_value(f"{place}.function.parameters.properties", "an object")
    described = {"name": function.name, "description": function.description or "", "parameters": parameters}
    return {"type": "function", "function": described}
