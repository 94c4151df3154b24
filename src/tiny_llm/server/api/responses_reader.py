"""POST /v1/responses and its input_tokens: their fields, and the fields of a chat that mean the same."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..errors import bad_value, renaming, unsupported
from ..models import ServedModel
from ..settings import Settings
from .chat import prepare_chat
from .fields import (
    ChatFields,
    Count,
    Int64,
    Message,
    Part,
    RequestFields,
    ResponseFormat,
    Temperature,
    ToolCall,
    TopP,
)
from .grammar import functions_of, named_function
from .job import Job, encode
from .prompt import count_tokens, not_text
from .responses_encoder import ResponseEncoder, ResponseTokens

TEXT_PARTS = ("input_text", "output_text", "text")
LOGPROBS = "message.output_text.logprobs"
# The other is asked for by coding agents: reasoning is returned as text, so nothing is kept from them.
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")
SUMMARIES = (None, "auto")  # reasoning is returned as it is; there are no summaries, which "auto" leaves open
# Our names of what a request may be refused for.
RENAMED = {
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "prompt": "input",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "response_format.type": "text.format.type",
    "tool_choice.function.name": "tool_choice.name",
}
NO_EFFORT = ("none", "minimal")


class TextFormat(Struct, kw_only=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Text(Struct, kw_only=True):
    format: TextFormat | None = None


class ReasoningOptions(Struct, kw_only=True):
    effort: str | None = None
    summary: str | None = None


class FunctionTool(Struct, kw_only=True):
    type: str
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponsePart(Struct, kw_only=True):
    type: str
    text: str | None = None


class Item(Struct, kw_only=True):
    """One of several kinds: a message, a call of a function, its result, reasoning."""

    type: str = "message"
    role: str | None = None
    content: str | list[ResponsePart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ResponsePart] | None = None


class ResponseFields(RequestFields, kw_only=True):
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None
    seed: Int64 | None = None
    stream: bool | None = None
    text: Text | None = None
    reasoning: ReasoningOptions | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None


def prepare_response(fields: ResponseFields, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    repeated, most = repeat(fields), settings.max_prompt_chars
    if sum(map(len, repeated.values())) > most:  # held until the answer ends
        largest = max(repeated, key=lambda name: len(repeated[name]))
        raise bad_value(largest, f"with all that the answer repeats, at most {most} bytes")
    chat = read_chat(fields, model)
    with renaming(RENAMED):
        return prepare_chat(chat, model, settings, ResponseEncoder(repeated))


def count_input(fields: ResponseFields, model: ServedModel, settings: Settings) -> ResponseTokens:
    chat = read_chat(fields, model)
    with renaming(RENAMED):
        return ResponseTokens("response.input_tokens", count_tokens(chat, model, settings))


def repeat(fields: ResponseFields) -> dict[str, bytes]:
    """What an answer repeats of its request, as JSON, with the values of fields that were not given."""
    repeated = {
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "reasoning": {"effort": fields.reasoning.effort if fields.reasoning else None, "summary": None},
        "temperature": 1.0 if fields.temperature is None else fields.temperature,
        "text": {"format": (fields.text and fields.text.format) or {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": fields.tools or [],
        "top_logprobs": fields.top_logprobs or 0,
        "top_p": 1.0 if fields.top_p is None else fields.top_p,
        "user": fields.user,
        "metadata": fields.metadata or {},
    }
    return {name: encode(value) for name, value in repeated.items()}


def read_chat(fields: ResponseFields, model: ServedModel) -> ChatFields:
    included, reasoning = fields.include or (), fields.reasoning or ReasoningOptions()
    for index, name in enumerate(included):
        if name not in INCLUDED:
            raise unsupported(f"include[{index}]", f"expected one of {', '.join(INCLUDED)}")
    if reasoning.summary not in SUMMARIES:
        raise unsupported("reasoning.summary", "expected auto or null: reasoning is returned as it is")
    form, choice = fields.text.format if fields.text else None, fields.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        # A chat has the name one level further in.
        choice = named_function(choice.get("name"))
    # An effort asks for reasoning. Coding agents send one to all models, so others do not refuse it.
    thinking = reasoning.effort not in (None, *NO_EFFORT) and model.takes_thinking
    return ChatFields(
        messages=read_messages(fields),
        max_completion_tokens=fields.max_output_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        logprobs=bool(fields.top_logprobs) or LOGPROBS in included,
        top_logprobs=fields.top_logprobs,
        seed=fields.seed,
        stream=fields.stream,
        response_format=None if form is None else ResponseFormat.of(form.schema, form.type),
        # `strict` is true by default at OpenAI; clients that leave it out do not ask for more than we do.
        tools=functions_of(fields.tools, ("function",)),
        tool_choice=choice,
        parallel_tool_calls=fields.parallel_tool_calls,
        chat_template_kwargs={"enable_thinking": thinking},
    )


def read_messages(fields: ResponseFields) -> list[Message]:
    messages = [] if fields.instructions is None else [Message(role="system", content=fields.instructions)]
    if isinstance(fields.input, str):
        return [*messages, Message(role="user", content=fields.input)]
    for index, item in enumerate(fields.input):
        message = read_item(f"input[{index}]", item)
        if message is None:
            continue
        last = messages[-1] if messages else None
        if message.tool_calls and last is not None and last.role == "assistant":
            last.tool_calls = [*(last.tool_calls or []), *message.tool_calls]  # one turn has several items
        else:
            messages.append(message)
    if not messages:
        raise bad_value("input", "at least one message")
    return messages


def read_item(path: str, item: Item) -> Message | None:
    """The message of an item; None for reasoning of earlier turns, which templates drop."""
    match item.type:
        case "message":
            if item.role is None:
                raise bad_value(f"{path}.role", "a value, got none")
            return Message(role=item.role, content=read_parts(f"{path}.content", item.content))
        case "function_call":
            if item.name is None or item.arguments is None:
                raise bad_value(path, "name and arguments")
            return Message(role="assistant", tool_calls=[ToolCall.of(item.name, item.arguments)])
        case "function_call_output":
            return Message(role="tool", content=read_parts(f"{path}.output", item.output))
        case "reasoning":
            return None
        case _:
            raise unsupported(f"{path}.type", "this server has messages, functions and reasoning only")


def read_parts(path: str, content: str | list[ResponsePart] | None) -> str | list[Part]:
    """The parts stay parts, whose number has a limit."""
    if content is None:
        raise bad_value(path, "a text, got null")
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in TEXT_PARTS:
            raise not_text(f"{path}[{index}]", part.type)
    return [Part(type="text", text=part.text) for part in content]
