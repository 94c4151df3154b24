"""From the fields of /v1/responses to those of a chat, which mean the same."""

from typing import Any

from ...errors import bad_value, renaming, unsupported
from ...models import ServedModel
from ...settings import Settings
from ..chat import prepare_chat
from ..count import count_tokens
from ..fields import ChatFields, Message, Part, ResponseFormat, ToolCall
from ..job import Job
from ..tools import functions_of, named_function
from .encoder import ResponseEncoder, repeat
from .fields import Item, ResponseFields, ResponsePart

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


def prepare_response(fields: ResponseFields, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    repeated = repeat(fields)
    if sum(map(len, repeated.values())) > settings.max_prompt_chars:  # held until the answer ends
        largest = max(repeated, key=lambda name: len(repeated[name]))
        raise bad_value(
            largest, f"with all that the answer repeats, at most {settings.max_prompt_chars} bytes"
        )
    chat = read_chat(fields, model)
    with renaming(RENAMED):
        return prepare_chat(chat, model, settings, ResponseEncoder(repeated))


def count_input(fields: ResponseFields, model: ServedModel, settings: Settings) -> dict[str, Any]:
    """The answer of /v1/responses/input_tokens."""
    chat = read_chat(fields, model)
    with renaming(RENAMED):
        tokens = count_tokens(chat, model, settings)
    return {"object": "response.input_tokens", "input_tokens": tokens}


def read_chat(fields: ResponseFields, model: ServedModel) -> ChatFields:
    included = fields.include or ()
    for index, name in enumerate(included):
        if name not in INCLUDED:
            raise unsupported(f"include[{index}]", f"expected one of {', '.join(INCLUDED)}")
    if fields.reasoning is not None and fields.reasoning.summary not in SUMMARIES:
        raise unsupported("reasoning.summary", "expected auto or null: reasoning is returned as it is")
    return ChatFields(
        messages=read_messages(fields),
        max_completion_tokens=fields.max_output_tokens,
        temperature=fields.temperature,
        top_p=fields.top_p,
        logprobs=bool(fields.top_logprobs) or LOGPROBS in included,
        top_logprobs=fields.top_logprobs,
        seed=fields.seed,
        stream=fields.stream,
        response_format=read_format(fields),
        # `strict` is true by default at OpenAI; clients that leave it out do not ask for more than we do.
        tools=functions_of(fields.tools, ("function",)),
        tool_choice=read_tool_choice(fields),
        parallel_tool_calls=fields.parallel_tool_calls,
        chat_template_kwargs={"enable_thinking": wants_thinking(fields, model)},
    )


def wants_thinking(fields: ResponseFields, model: ServedModel) -> bool:
    """An effort asks for reasoning. Coding agents send one to all models, so others do not refuse it."""
    effort = fields.reasoning.effort if fields.reasoning else None
    return effort is not None and effort not in NO_EFFORT and model.takes_thinking


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
            if item.content is None:
                raise bad_value(f"{path}.content", "a text, got null")
            return Message(role=item.role, content=read_parts(f"{path}.content", item.content))
        case "function_call":
            if item.name is None or item.arguments is None:
                raise bad_value(path, "name and arguments")
            return Message(role="assistant", tool_calls=[ToolCall.of(item.name, item.arguments)])
        case "function_call_output":
            if item.output is None:
                raise bad_value(f"{path}.output", "a text, got null")
            content = read_parts(f"{path}.output", item.output)
            return Message(role="tool", content=content)
        case "reasoning":
            return None
        case _:
            raise unsupported(f"{path}.type", "this server has messages, functions and reasoning only")


def read_parts(path: str, content: str | list[ResponsePart]) -> str | list[Part]:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in TEXT_PARTS:
            raise unsupported(f"{path}[{index}].type", "expected text: this model reads nothing else")
    return [Part(type="text", text=part.text) for part in content]


def read_tool_choice(fields: ResponseFields) -> str | dict[str, Any] | None:
    """A named function has its name one level further out than in a chat."""
    choice = fields.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function":
        return named_function(choice.get("name"))
    return choice


def read_format(fields: ResponseFields) -> ResponseFormat | None:
    form = fields.text.format if fields.text else None
    return None if form is None else ResponseFormat.of(form.schema, form.type)
