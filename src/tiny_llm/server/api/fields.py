"""The fields of a request, with their types and ranges. `null` counts as absent."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ...sampling.ranges import (
    BIAS,
    COUNT_PENALTY,
    MAX_TOKENS,
    MIN_P,
    MIN_TOKENS,
    REPETITION_PENALTY,
    SEED,
    TEMP,
    TOKEN_ID,
    TOP_K,
    TOP_P,
    Range,
)


def within(allowed: Range, **bounds: float) -> Meta:
    """A range for msgspec and OpenAPI; whole numbers have 32 bits where `bounds` says nothing else."""
    chosen: dict[str, Any] = {
        "gt" if allowed.above else "ge": allowed.low,
        "le": min(allowed.high, 2**31 - 1),
    }
    return Meta(**chosen | bounds)


Count = Annotated[int, within(MAX_TOKENS)]
Int64 = Annotated[int, within(SEED, le=SEED.high)]
Temperature = Annotated[float, within(TEMP, le=2)]  # as at OpenAI
TopP = Annotated[float, within(TOP_P)]
TopK = Annotated[int, within(TOP_K)]
Penalty = Annotated[float, within(COUNT_PENALTY)]
RepetitionPenalty = Annotated[float, within(REPETITION_PENALTY, le=1e6)]
Fraction = Annotated[float, within(MIN_P)]
TokenId = Annotated[int, within(TOKEN_ID)]
StopString = Annotated[str, Meta(min_length=1)]


class StreamOptions(Struct, kw_only=True):
    include_usage: bool | None = None


class SchemaFormat(Struct, kw_only=True):
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct, kw_only=True):
    type: str
    json_schema: SchemaFormat | None = None

    @classmethod
    def of(cls, schema: dict[str, Any] | None, kind: str = "json_schema") -> "ResponseFormat":
        return cls(type=kind, json_schema=SchemaFormat(schema=schema))


class StructuredOutputs(Struct, kw_only=True):
    """vLLM's name for grammars; one of the fields is given."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class RequestFields(Struct, kw_only=True, weakref=True):
    """What all routes that answer with a model have in common."""

    model: str | None = None


class AnswerFields(RequestFields, kw_only=True):
    """What /v1/chat/completions and /v1/completions have in common."""

    max_tokens: Annotated[int, within(MAX_TOKENS, ge=0)] | None = None  # 0 with echo
    min_tokens: Annotated[int, within(MIN_TOKENS)] | None = None
    ignore_eos: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, within(TOP_K, ge=-1)] | None = None  # -1 is vLLM's word for all
    min_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: dict[TokenId, Annotated[float, within(BIAS)]] | None = None
    seed: Int64 | None = None
    n: Count | None = None
    stop: StopString | list[StopString] | None = None
    stop_token_ids: list[TokenId] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: Annotated[str, Meta(max_length=256)] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None


class CompletionFields(AnswerFields, kw_only=True):
    prompt: str | list[str | int | list[int]]
    best_of: Count | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0)] | None = None


class FunctionCall(Struct, kw_only=True):
    name: str
    arguments: str


class ToolCall(Struct, kw_only=True):
    function: FunctionCall
    id: str | None = None  # no template gets it: the results of calls follow in their order
    type: str = "function"

    @classmethod
    def of(cls, name: str, arguments: str | dict[str, Any]) -> "ToolCall":
        """A call with arguments as JSON or as an object."""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        return cls(function=FunctionCall(name=name, arguments=arguments))


class Part(Struct, kw_only=True):
    """A piece of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None  # of the type "refusal", in messages of the assistant


class Message(Struct, kw_only=True):
    role: str
    content: str | list[Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(Struct, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, kw_only=True):
    type: str
    function: Function


class ChatFields(AnswerFields, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class TokenizeFields(RequestFields, kw_only=True):
    """A text, or a chat, of which the prompt is tokenized."""

    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: list[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeFields(RequestFields, kw_only=True):
    tokens: list[TokenId]
