"""From the fields of /v1/messages to those of a chat, which mean the same."""

from collections.abc import Iterator, Sequence
from typing import Any

from ...errors import ApiError, bad_value, renaming, unsupported
from ...models import ServedModel
from ...settings import Settings
from ..chat import prepare_chat
from ..count import count_tokens
from ..fields import ChatFields, Message, ResponseFormat, ToolCall
from ..job import Job
from ..tools import functions_of, named_function
from .encoder import AnthropicEncoder
from .fields import (
    AnthropicFields,
    AnthropicMessage,
    AnthropicPrompt,
    ContentBlock,
    ResultBlock,
    TextBlock,
    ToolChoice,
)

FAILED = "Error: "  # before the result of a tool that failed: chat templates know no other mark
# Our names of what a request may be refused for.
RENAMED = {"prompt": "messages", "stop": "stop_sequences", "tool_choice.function.name": "tool_choice.name"}
DROPPED = ("thinking", "redacted_thinking")  # of earlier turns, as templates do
# Anthropic's words for these: Claude Code knows them, and goes on without the picture or document.
UNREAD = {"image": "Could not process image", "document": "Could not process PDF"}
BILLING = "x-anthropic-billing-header:"  # Claude Code: not for the model, and another in each conversation


def prepare_messages(fields: AnthropicFields, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    sampling = {
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "top_k": fields.top_k,
        "stop": fields.stop_sequences,
    }
    chat = read_chat(fields, model, stream=fields.stream, **sampling)
    encoder = AnthropicEncoder(fields.max_tokens, edits=fields.context_management is not None)
    form_name = "output_config.format" if fields.output_format is None else "output_format"
    with renaming({**RENAMED, "response_format": form_name}):
        return prepare_chat(chat, model, settings, encoder, fields.max_tokens)


def count_messages(fields: AnthropicPrompt, model: ServedModel, settings: Settings) -> dict[str, Any]:
    """The answer of /v1/messages/count_tokens."""
    return {"input_tokens": count_tokens(read_chat(fields, model), model, settings)}


def read_chat(fields: AnthropicPrompt, model: ServedModel, **others: Any) -> ChatFields:
    """A final message of the assistant is the begin of the answer."""
    messages = list(read_messages(fields))
    if not messages:
        raise bad_value("messages", "at least one with a text, a call or a result")
    final = messages[-1]
    return ChatFields(
        messages=[*read_system(fields), *messages],
        continue_final_message=final.role == "assistant" and not final.tool_calls,
        response_format=read_format(fields),
        tools=functions_of(fields.tools, (None, "custom")),
        tool_choice=read_tool_choice(fields),
        parallel_tool_calls=not (fields.tool_choice and fields.tool_choice.disable_parallel_tool_use),
        chat_template_kwargs={"enable_thinking": read_thinking(fields, model)},
        **others,
    )


def read_format(fields: AnthropicPrompt) -> ResponseFormat | None:
    """The effort beside it has no effect: clients send one to all models."""
    newer = fields.output_config.format if fields.output_config else None
    if newer is not None and fields.output_format is not None:
        raise bad_value("output_format", "none beside output_config.format")
    path, form = ("output_config.format", newer) if newer else ("output_format", fields.output_format)
    if form is None:
        return None
    if form.type != "json_schema":
        raise bad_value(f"{path}.type", "json_schema")
    if form.schema is None:
        raise bad_value(f"{path}.schema", "a JSON schema")
    return ResponseFormat.of(form.schema)


def read_tool_choice(fields: AnthropicPrompt) -> str | dict[str, Any]:
    match fields.tool_choice:
        case None:
            return "auto"
        case ToolChoice(type="auto" | "none" as kind):
            return kind
        case ToolChoice(type="any"):
            return "required"
        case ToolChoice(type="tool", name=str(name)):
            return named_function(name)
        case _:
            raise bad_value("tool_choice", "auto, none, any, or tool with a name")


def read_thinking(fields: AnthropicPrompt, model: ServedModel) -> bool:
    """Coding agents ask all models to think, so those that cannot do not refuse it."""
    match fields.thinking.type if fields.thinking else "disabled":
        case "disabled":
            return False
        case "adaptive" | "enabled":
            return model.takes_thinking
        case _:
            raise bad_value("thinking.type", "one of enabled, adaptive, disabled")


def read_system(fields: AnthropicPrompt) -> list[Message]:
    system = fields.system or []
    if not isinstance(system, str):  # what all conversations begin with can be in the prefix cache
        system = [block for block in system if not (block.text or "").startswith(BILLING)]
    return [Message(role="system", content=read_texts("system", system))] if system else []


def read_messages(fields: AnthropicPrompt) -> Iterator[Message]:
    for index, message in enumerate(fields.messages):
        path = f"messages[{index}]"
        if message.role not in ("user", "assistant", "system"):
            raise bad_value(f"{path}.role", "one of user, assistant, system")
        if isinstance(message.content, str):
            yield Message(role=message.role, content=message.content)
        else:
            yield from read_blocks(f"{path}.content", message, message.content)


def read_blocks(path: str, message: AnthropicMessage, blocks: list[ContentBlock]) -> Iterator[Message]:
    """Results of tools are messages of their own; text and calls of a turn are one."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        block_path = f"{path}[{index}]"
        match block.type:
            case "text":
                texts.append(read_texts(block_path, [block]))
            case "tool_use" if message.role == "assistant":
                if block.name is None or block.input is None:
                    raise bad_value(block_path, "name and input")
                calls.append(ToolCall.of(block.name, block.input))
            case "tool_result" if message.role == "user":
                result = read_result(f"{block_path}.content", block.content or "")
                result = FAILED + result if block.is_error else result
                yield Message(role="tool", content=result)
            case kind if kind in DROPPED:
                pass
            case _:
                raise unread(block_path, kind)
    if texts or calls:
        yield Message(role=message.role, content="".join(texts), tool_calls=calls or None)


def unread(path: str, kind: str) -> ApiError:
    sentence = UNREAD.get(kind, "expected text or tools")
    return unsupported(f"{path}.type", f"{sentence}: this model reads text only")


def read_texts(path: str, content: str | Sequence[TextBlock]) -> str:
    if isinstance(content, str):
        return content
    for index, block in enumerate(content):
        if block.type != "text":
            raise unread(f"{path}[{index}]", block.type)
        if block.text is None:
            raise bad_value(f"{path}[{index}].text", "a text, got null")
    return "".join(block.text or "" for block in content)


def read_result(path: str, content: str | list[ResultBlock]) -> str:
    """A search for tools finds names; the tools themselves are in the request."""
    if isinstance(content, str):
        return content
    blocks = [
        TextBlock(type="text", text=f"{block.tool_name}\n")
        if block.type == "tool_reference" and block.tool_name
        else block
        for block in content
    ]
    return read_texts(path, blocks)
