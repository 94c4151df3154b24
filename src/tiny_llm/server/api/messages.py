"""The messages of a chat, checked and in the form that chat templates read."""

from typing import Any

import msgspec

from ..errors import ApiError, bad_value, unsupported
from ..settings import Settings
from .fields import Message, ToolCall

ROLES = {"system", "developer", "user", "assistant", "tool"}


def check_number(messages: list[Message], settings: Settings) -> None:
    """Every message takes time, also an empty one, and so does every part and call of it."""
    parts = sum(len(each.content) for each in messages if isinstance(each.content, list))
    calls = sum(len(each.tool_calls or ()) for each in messages)
    if len(messages) + parts + calls > settings.max_messages:
        raise bad_value("messages", f"at most {settings.max_messages}, with their parts and calls")


def read_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """A dictionary for each message; whatever is not text is refused, and nothing is fetched."""
    return [_read(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _read(place: str, message: Message) -> dict[str, Any]:
    if message.role not in ROLES:
        raise bad_value(f"{place}.role", f"one of {', '.join(sorted(ROLES))}")
    calls = message.tool_calls
    if calls and message.role != "assistant":
        raise bad_value(f"{place}.tool_calls", "none in a message that is not the assistant's")
    if message.content is None and message.role != "assistant":  # an answer may consist of calls, or be empty
        raise bad_value(f"{place}.content", "a text, got null")
    role = "system" if message.role == "developer" else message.role
    content = message.refusal if message.content is None else message.content
    read: dict[str, Any] = {"role": role, "content": _text(place, content)}
    if calls:
        read["tool_calls"] = [_call(f"{place}.tool_calls[{i}]", call) for i, call in enumerate(calls)]
    if message.reasoning_content:
        read["reasoning_content"] = message.reasoning_content
    return read


def _text(place: str, content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, part in enumerate(content):
        if part.type not in ("text", "refusal"):
            raise unsupported(
                f"{place}.content[{index}].type", "expected text: this model reads nothing else"
            )
        text = part.text if part.type == "text" else part.refusal
        if text is None:
            raise bad_value(f"{place}.content[{index}].{part.type}", "a text, got null")
        texts.append(text)
    return "".join(texts)


def _call(place: str, call: ToolCall) -> dict[str, Any]:
    """Templates write the arguments as JSON, so they must be an object here."""
    if call.type != "function":
        raise bad_value(f"{place}.type", "function")
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(place) from error
    if not isinstance(arguments, dict):
        raise _not_json(place)
    return {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _not_json(place: str) -> ApiError:
    return bad_value(f"{place}.function.arguments", "a JSON object")
