"""POST /v1/messages and its count_tokens: their fields, and the fields of a chat that mean the same."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from ..errors import ApiError, bad_value, renaming, unsupported
from ..models import ServedModel
from ..settings import Settings
from .anthropic_encoder import AnthropicEncoder, AnthropicTokens
from .chat import prepare_chat
from .fields import (
    ChatFields,
    Count,
    Fraction,
    Message,
    RequestFields,
    ResponseFormat,
    StopString,
    ToolCall,
    TopK,
    TopP,
)
from .grammar import functions_of, named_function
from .job import Job
from .prompt import count_tokens, text_of

FAILED = "Error: "  # before the result of a tool that failed: chat templates know no other mark
# Our names of what a request may be refused for.
RENAMED = {"prompt": "messages", "stop": "stop_sequences", "tool_choice.function.name": "tool_choice.name"}
DROPPED = ("thinking", "redacted_thinking")  # of earlier turns, as templates do
# Anthropic's words for these: Claude Code knows them, and goes on without the picture or document.
UNREAD = {"image": "Could not process image", "document": "Could not process PDF"}
BILLING = "x-anthropic-billing-header:"  # Claude Code: not for the model, and another in each conversation


class TextBlock(Struct, kw_only=True):
    type: str
    text: str | None = None


class ResultBlock(TextBlock, kw_only=True):
    tool_name: str | None = None  # of a tool_reference


class ContentBlock(TextBlock, kw_only=True):
    """Text, a call of a tool, its result, or reasoning."""

    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


class AnthropicMessage(Struct, kw_only=True):
    role: str
    content: str | list[ContentBlock]


class AnthropicTool(Struct, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,128}\Z")]
    type: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = field(default=None, name="input_schema")
    strict: bool | None = None


class ToolChoice(Struct, kw_only=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct, kw_only=True):
    type: str
    budget_tokens: int | None = None


class OutputFormat(Struct, kw_only=True):
    type: str
    schema: dict[str, Any] | None = None


class OutputConfig(Struct, kw_only=True):
    format: OutputFormat | None = None
    effort: str | None = None


class AnthropicPrompt(RequestFields, kw_only=True):
    """What makes the prompt: the fields of /v1/messages/count_tokens."""

    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    system: str | list[TextBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # its name before `output_config`
    context_management: dict[str, Any] | None = None


class AnthropicFields(AnthropicPrompt, kw_only=True):
    max_tokens: Count
    temperature: Fraction | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: list[StopString] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None


def prepare_messages(fields: AnthropicFields, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    chat = read_chat(
        fields,
        model,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop=fields.stop_sequences,
        stream=fields.stream,
    )
    encoder = AnthropicEncoder(fields.max_tokens, edits=fields.context_management is not None)
    form_name = "output_config.format" if fields.output_format is None else "output_format"
    with renaming({**RENAMED, "response_format": form_name}):
        return prepare_chat(chat, model, settings, encoder, fields.max_tokens)


def count_messages(fields: AnthropicPrompt, model: ServedModel, settings: Settings) -> AnthropicTokens:
    return AnthropicTokens(count_tokens(read_chat(fields, model), model, settings))


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
        tool_choice=read_tool_choice(fields.tool_choice),
        parallel_tool_calls=not (fields.tool_choice and fields.tool_choice.disable_parallel_tool_use),
        chat_template_kwargs={"enable_thinking": read_thinking(fields, model)},
        **others,
    )


def read_format(fields: AnthropicPrompt) -> ResponseFormat | None:
    """The effort beside it has no effect: clients send one to all models."""
    path, form = "output_config.format", fields.output_config.format if fields.output_config else None
    if form is not None and fields.output_format is not None:
        raise bad_value("output_format", "none beside output_config.format")
    if form is None:
        path, form = "output_format", fields.output_format
    if form is None:
        return None
    if form.type != "json_schema":
        raise bad_value(f"{path}.type", "json_schema")
    if form.schema is None:
        raise bad_value(f"{path}.schema", "a JSON schema")
    return ResponseFormat.of(form.schema)


def read_tool_choice(choice: ToolChoice | None) -> str | dict[str, Any]:
    match choice:
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
    return [Message(role="system", content=text_of("system", system, refuse=unread))] if system else []


def read_messages(fields: AnthropicPrompt) -> Iterator[Message]:
    for index, message in enumerate(fields.messages):
        path = f"messages[{index}]"
        if message.role not in ("user", "assistant", "system"):
            raise bad_value(f"{path}.role", "one of user, assistant, system")
        if isinstance(message.content, str):
            yield Message(role=message.role, content=message.content)
        else:
            yield from read_blocks(f"{path}.content", message.role, message.content)


def read_blocks(path: str, role: str, blocks: list[ContentBlock]) -> Iterator[Message]:
    """Results of tools are messages of their own; text and calls of a turn are one."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for index, block in enumerate(blocks):
        place = f"{path}[{index}]"
        match block.type:
            case "text":
                texts.append(text_of(place, [block]))
            case "tool_use" if role == "assistant":
                if block.name is None or block.input is None:
                    raise bad_value(place, "name and input")
                calls.append(ToolCall.of(block.name, block.input))
            case "tool_result" if role == "user":
                result = read_result(f"{place}.content", block.content or "")
                yield Message(role="tool", content=FAILED + result if block.is_error else result)
            case kind if kind in DROPPED:
                pass
            case kind:
                raise unread(place, kind)
    if texts or calls:
        yield Message(role=role, content="".join(texts), tool_calls=calls or None)


def read_result(path: str, content: str | list[ResultBlock]) -> str:
    """A search for tools finds names; the tools themselves are in the request."""
    for block in [] if isinstance(content, str) else content:
        if block.type == "tool_reference" and block.tool_name:
            block.type, block.text = "text", f"{block.tool_name}\n"
    return text_of(path, content, refuse=unread)


def unread(path: str, kind: str) -> ApiError:
    sentence = UNREAD.get(kind, "expected text or tools")
    return unsupported(f"{path}.type", f"{sentence}: this model reads text only")
