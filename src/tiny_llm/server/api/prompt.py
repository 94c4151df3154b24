"""A chat as the prompt of a model: its messages, checked and in the form that chat templates read.

POST /tokenize and /detokenize, which show its tokens, have vLLM's fields.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import LoadError
from ..errors import ApiError, bad_value, unsupported
from ..models import ServedModel
from ..settings import Settings
from .fields import ChatFields, DetokenizeFields, Message, TokenizeFields, ToolCall
from .grammar import read_tools
from .pieces import THINK
from .sampling import check_ids

ROLES = {"system", "developer", "user", "assistant", "tool"}
TEMPLATE_SWITCHES = {"enable_thinking"}


class Tokenized(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct):
    prompt: str


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


def not_text(path: str, kind: str) -> ApiError:
    return unsupported(f"{path}.type", "expected text: this model reads nothing else")


def text_of(
    path: str,
    content: str | Sequence[Any],
    kinds: Sequence[str] = ("text",),
    refuse: Callable[[str, str], ApiError] = not_text,
) -> str:
    """The text of a content at this place. Its parts must be of these kinds, and nothing is fetched."""
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        if part.type not in kinds:
            raise refuse(f"{path}[{index}]", part.type)
        name = "refusal" if part.type == "refusal" else "text"
        text = getattr(part, name)
        if text is None:
            raise bad_value(f"{path}[{index}].{name}", "a text, got null")
        texts.append(text)
    return "".join(texts)


def read_message(path: str, message: Message) -> dict[str, Any]:
    """As chat templates read it."""
    if message.role not in ROLES:
        raise bad_value(f"{path}.role", f"one of {', '.join(sorted(ROLES))}")
    calls = message.tool_calls
    if calls and message.role != "assistant":
        raise bad_value(f"{path}.tool_calls", "none in a message that is not the assistant's")
    if message.content is None and message.role != "assistant":  # an answer may consist of calls, or be empty
        raise bad_value(f"{path}.content", "a text, got null")
    content = (message.refusal or "") if message.content is None else message.content
    read: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": text_of(f"{path}.content", content, ("text", "refusal")),
    }
    if calls:
        read["tool_calls"] = [_call(f"{path}.tool_calls[{i}]", call) for i, call in enumerate(calls)]
    if message.reasoning_content:
        read["reasoning_content"] = message.reasoning_content
    return read


def _call(path: str, call: ToolCall) -> dict[str, Any]:
    """Templates write the arguments as JSON, so they must be an object here."""
    if call.type != "function":
        raise bad_value(f"{path}.type", "function")
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_value(f"{path}.function.arguments", "a JSON object") from error
    return {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}


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
    messages = [read_message(f"messages[{i}]", message) for i, message in enumerate(fields.messages)]
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


def count_tokens(fields: ChatFields, model: ServedModel, settings: Settings) -> int:
    """Also of a prompt that is longer than the context."""
    return len(_chat_ids(fields, model, settings))


def tokenize(fields: TokenizeFields, model: ServedModel, settings: Settings) -> Tokenized:
    """The ids of a text, or of the prompt of a chat."""
    if (fields.prompt is None) == (fields.messages is None):
        raise bad_value("prompt", "either a prompt or messages")
    if fields.messages is not None and fields.add_special_tokens:
        raise unsupported("add_special_tokens", "expected false: the chat template writes them")
    for name in ("tools", "continue_final_message", "chat_template_kwargs"):
        if fields.prompt is not None and getattr(fields, name):
            raise bad_value(name, "none beside a prompt")
    if fields.prompt is None:
        ids = _chat_ids(msgspec.convert(fields, ChatFields, from_attributes=True), model, settings)
    else:
        check_chars("prompt", [fields.prompt], model, settings)
        ids = model.tokenizer.encode(fields.prompt, fields.add_special_tokens is not False)
    texts = None
    if fields.return_token_strs:
        texts = [model.tokenizer.token_bytes(token).decode(errors="replace") for token in ids]
    return Tokenized(len(ids), model.engine.context, ids, texts)


def detokenize(fields: DetokenizeFields, model: ServedModel, settings: Settings) -> Detokenized:
    """The text of ids."""
    if len(fields.tokens) > model.engine.context:
        raise bad_value("tokens", f"at most {model.engine.context} ids")
    check_ids("tokens", fields.tokens, model.tokenizer.vocab_size)
    return Detokenized(model.tokenizer.decode(fields.tokens))


def _chat_ids(fields: ChatFields, model: ServedModel, settings: Settings) -> list[int]:
    return read_prompt(fields, read_tools(fields, model, settings), model, settings).ids
