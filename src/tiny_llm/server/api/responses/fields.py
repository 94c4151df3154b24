"""The fields of a request to /v1/responses."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..fields import Count, Int64, RequestFields, Temperature, TopP


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
