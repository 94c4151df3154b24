"""A chat as the prompt of a model: its messages, checked and in the form that chat templates read."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from ...loading.errors import LoadError
from ..errors import ApiError, bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields, Message, ToolCall
from .pieces import THINK

ROLES = {"system", "developer", "user", "assistant", "tool"}
TEMPLATE_SWITCHES = {"enable_thinking"}


def check_chars(param: str, texts: Iterable[str], model: ServedModel, settings: Settings) -> None:
    """400 if these texts together never fit into the context, or are longer than any prompt may be."""
    most = min(settings.max_prompt_chars, model.most_chars)
    if sum(map(len, texts)) > most:
        raise _too_long(param, most)


def _too_long(param: str, most: int) -> ApiError:
    sentence = f"{param}: the prompt is too long: expected at most {most} characters"
    return ApiError(400, sentence, param=param, code="context_length_exceeded")


def check_number(messages: list[Message], settings: Settings) -> None:
    """Every message takes time, also an empty one, and so does every part and call of it."""
    parts = sum(len(each.content) for each in messages if isinstance(each.content, list))
    calls = sum(len(each.tool_calls or ()) for each in messages)
    if len(messages) + parts + calls > settings.max_messages:
        raise bad_value("messages", f"at most {settings.max_messages}, with their parts and calls")


def read_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """A dictionary for each message; whatever is not text is refused, and nothing is fetched."""
    return [_read(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _read(path: str, message: Message) -> dict[str, Any]:
    if message.role not in ROLES:
        raise bad_value(f"{path}.role", f"one of {', '.join(sorted(ROLES))}")
    calls = message.tool_calls
    if calls and message.role != "assistant":
        raise bad_value(f"{path}.tool_calls", "none in a message that is not the assistant's")
    if message.content is None and message.role != "assistant":  # an answer may consist of calls, or be empty
        raise bad_value(f"{path}.content", "a text, got null")
    role = "system" if message.role == "developer" else message.role
    content = message.refusal if message.content is None else message.content
    read: dict[str, Any] = {"role": role, "content": _text(path, content)}
    if calls:
        read["tool_calls"] = [_call(f"{path}.tool_calls[{i}]", call) for i, call in enumerate(calls)]
    if message.reasoning_content:
        read["reasoning_content"] = message.reasoning_content
    return read


def _text(path: str, content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, part in enumerate(content):
        if part.type not in ("text", "refusal"):
            raise unsupported(f"{path}.content[{index}].type", "expected text: this model reads nothing else")
        text = part.text if part.type == "text" else part.refusal
        if text is None:
            raise bad_value(f"{path}.content[{index}].{part.type}", "a text, got null")
        texts.append(text)
    return "".join(texts)


def _call(path: str, call: ToolCall) -> dict[str, Any]:
    """Templates write the arguments as JSON, so they must be an object here."""
    if call.type != "function":
        raise bad_value(f"{path}.type", "function")
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(path) from error
    if not isinstance(arguments, dict):
        raise _not_json(path)
    return {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _not_json(path: str) -> ApiError:
    return bad_value(f"{path}.function.arguments", "a JSON object")


@dataclass(frozen=True, slots=True)
class Prompt:
    """thinking: the answer may begin with reasoning; `inside` if the prompt has its begin."""

    ids: list[int]
    thinking: bool
    inside: bool


def read_prompt(
    fields: ChatFields, tools: list[dict[str, Any]] | None, model: ServedModel, settings: Settings
) -> Prompt:
    """Renders and encodes, which takes time: not for the event loop."""
    if fields.continue_final_message and fields.add_generation_prompt:
        raise bad_value("add_generation_prompt", "false beside continue_final_message")
    thinking = read_thinking(fields, model)
    text = render(fields, model, thinking, tools, settings)
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    if fields.continue_final_message:  # reasoning comes before its content
        return Prompt(ids, thinking=False, inside=False)
    return Prompt(ids, thinking, inside=text.rstrip().endswith(THINK))


def read_thinking(fields: ChatFields, model: ServedModel) -> bool:
    """The one switch of templates that requests may set."""
    switches = fields.chat_template_kwargs or {}
    for name, value in switches.items():
        param = f"chat_template_kwargs.{name:.64}"
        if name not in TEMPLATE_SWITCHES:
            raise unsupported(param, f"expected one of {', '.join(sorted(TEMPLATE_SWITCHES))}")
        if not isinstance(value, bool):
            raise bad_value(param, "true or false")
    wanted = bool(switches.get("enable_thinking", False))
    if wanted and not model.takes_thinking:
        raise unsupported(
            "chat_template_kwargs.enable_thinking", "the model's chat template has no such switch"
        )
    return wanted


def render(
    fields: ChatFields,
    model: ServedModel,
    thinking: bool,
    tools: list[dict[str, Any]] | None,
    settings: Settings,
) -> str:
    """The text that the model's chat template makes of the messages."""
    check_number(fields.messages, settings)
    messages = read_messages(fields.messages)
    # Templates may drop space, and what an answer had before its end of thinking.
    texts = [message["content"].strip() for message in messages if message["role"] != "assistant"]
    check_chars("messages", texts, model, settings)
    if sum(len(message["content"]) for message in messages) > settings.max_prompt_chars:
        raise _too_long("messages", settings.max_prompt_chars)
    if tools is not None and len(msgspec.json.encode(tools)) > settings.max_prompt_chars:
        raise bad_value("tools", f"at most {settings.max_prompt_chars} characters")
    mark = mark_final(messages) if fields.continue_final_message else None
    options: dict[str, Any] = {"enable_thinking": thinking}
    if mark or fields.add_generation_prompt is False:
        options["add_generation_prompt"] = False
    if tools:
        options["tools"] = tools
    try:
        text = model.tokenizer.apply_chat_template(messages, **options)
    except LoadError as error:
        raise ApiError(400, f"messages: {error}", param="messages", code="chat_template") from error
    check_chars("messages", [text], model, settings)
    if mark is None:
        return text
    text, found, _ = text.rpartition(mark)
    if not found:
        raise unsupported("continue_final_message", "the model's chat template does not write that message")
    return text


def mark_final(messages: list[dict[str, Any]]) -> str:
    """Put a mark at the end of the final message, after which a template may write more; return the mark."""
    final = messages[-1]
    if final["role"] != "assistant" or "tool_calls" in final:
        raise bad_value("continue_final_message", "a final message of the assistant, without calls")
    mark = secrets.token_hex(16)
    final["content"] += mark
    return mark
