"""The fields of a request to /v1/messages."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from ..fields import Count, Fraction, RequestFields, StopString, TopK, TopP


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
