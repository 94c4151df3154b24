"""From the fields of /v1/messages to those of a chat, which mean the same."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ...errors import bad_value, unsupported
from ...models import ServedModel
from ...settings import Settings
from ..chat import prepare_chat
from ..fields import ChatFields, Function, FunctionCall, Message, Tool, ToolCall
from ..job import Job
from .fields import (
    AnthropicFields,
    AnthropicMessage,
    AnthropicTool,
    ContentBlock,
    TextBlock,
    ToolChoice,
)
from .form import AnthropicForm

FAILED = "Error: "  # before the result of a tool that failed: chat templates know no other mark
DROPPED = ("thinking", "redacted_thinking")  # of earlier turns, as templates do


def prepare_messages(fields: AnthropicFields, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    chat = ChatFields(
        messages=[*read_system(fields), *read_messages(fields)],
        max_completion_tokens=fields.max_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop=fields.stop_sequences,
        stream=fields.stream,
        tools=[read_tool(f"tools[{i}]", tool) for i, tool in enumerate(fields.tools or [])] or None,
        tool_choice=read_tool_choice(fields),
        parallel_tool_calls=not (fields.tool_choice and fields.tool_choice.disable_parallel_tool_use),
        chat_template_kwargs={"enable_thinking": read_thinking(fields, model)},
    )
    return prepare_chat(chat, model, settings, AnthropicForm())


def read_tool_choice(fields: AnthropicFields) -> str | dict[str, Any]:
    match fields.tool_choice:
        case None:
            return "auto"
        case ToolChoice(type="auto" | "none" as kind):
            return kind
        case ToolChoice(type="any"):
            return "required"
        case ToolChoice(type="tool", name=str(name)):
            return {"type": "function", "function": {"name": name}}
        case _:
            raise bad_value("tool_choice", "auto, none, any, or tool with a name")


def read_thinking(fields: AnthropicFields, model: ServedModel) -> bool:
    """Adaptive thinking leaves it to the model, which may have none."""
    match fields.thinking.type if fields.thinking else "disabled":
        case "disabled":
            return False
        case "adaptive":
            return model.takes_thinking
        case "enabled" if model.takes_thinking:
            return True
        case "enabled":
            raise unsupported("thinking", "the model's chat template has no switch for it")
        case _:
            raise bad_value("thinking.type", "one of enabled, adaptive, disabled")


def read_system(fields: AnthropicFields) -> list[Message]:
    if not fields.system:
        return []
    return [Message(role="system", content=read_texts("system", fields.system))]


def read_messages(fields: AnthropicFields) -> Iterator[Message]:
    for index, message in enumerate(fields.messages):
        place = f"messages[{index}]"
        if message.role not in ("user", "assistant"):
            raise bad_value(f"{place}.role", "user or assistant")
        if isinstance(message.content, str):
            yield Message(role=message.role, content=message.content)
        else:
            yield from read_blocks(f"{place}.content", message, message.content)


def read_blocks(place: str, message: AnthropicMessage, blocks: list[ContentBlock]) -> Iterator[Message]:
    """Results of tools are messages of their own; text and calls of a turn are one."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        where = f"{place}[{index}]"
        match block.type:
            case "text":
                texts.append(read_texts(where, [block]))
            case "tool_use" if message.role == "assistant":
                if block.name is None or block.input is None:
                    raise bad_value(where, "name and input")
                arguments = msgspec.json.encode(block.input).decode()
                function = FunctionCall(name=block.name, arguments=arguments)
                calls.append(ToolCall(function=function, id=block.id))
            case "tool_result" if message.role == "user":
                result = read_texts(f"{where}.content", block.content or "")
                result = FAILED + result if block.is_error else result
                yield Message(role="tool", content=result, tool_call_id=block.tool_use_id)
            case kind if kind in DROPPED:
                pass
            case _:
                raise unsupported(f"{where}.type", "expected text or tools: this model reads nothing else")
    if texts or calls:
        yield Message(role=message.role, content="".join(texts), tool_calls=calls or None)


def read_texts(place: str, content: str | list[TextBlock] | list[ContentBlock]) -> str:
    if isinstance(content, str):
        return content
    for index, block in enumerate(content):
        if block.type != "text":
            raise unsupported(f"{place}[{index}].type", "expected text: this model reads nothing else")
        if block.text is None:
            raise bad_value(f"{place}[{index}].text", "a text, got null")
    return "".join(block.text or "" for block in content)


def read_tool(place: str, tool: AnthropicTool) -> Tool:
    if tool.type not in (None, "custom"):
        raise unsupported(f"{place}.type", "expected custom: this server has no tools of its own")
    function = Function(name=tool.name, description=tool.description, parameters=tool.input_schema)
    return Tool(type="function", function=function)
