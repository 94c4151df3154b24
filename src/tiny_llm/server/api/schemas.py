"""The shapes of answers and errors, for the OpenAPI document: what each of them has; some have more."""

from typing import Any, Literal

from msgspec import Struct

FinishReason = Literal["stop", "length", "tool_calls"]


class CachedTokens(Struct):
    cached_tokens: int


class InputTokens(Struct):
    cached_tokens: int
    cache_write_tokens: int


class ReasoningTokens(Struct):
    reasoning_tokens: int


class TokenUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class ChatMessage(Struct):
    role: Literal["assistant"]
    content: str | None


class ChatAnswerChoice(Struct):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class ChatAnswer(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatAnswerChoice]
    usage: TokenUsage


class CompletionAnswerChoice(Struct):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason


class CompletionAnswer(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionAnswerChoice]
    usage: TokenUsage


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: InputTokens
    output_tokens: int
    total_tokens: int


class ResponseAnswer(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage


class AnthropicUsage(Struct):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int


class AnthropicAnswer(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str
    usage: AnthropicUsage


class ResponseTokens(Struct):
    object: Literal["response.input_tokens"]
    input_tokens: int


class AnthropicTokens(Struct):
    input_tokens: int


class Tokenized(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(Struct):
    prompt: str


class OllamaEnd(Struct, omit_defaults=True):
    """Numbers of tokens and nanoseconds; none if the request only wanted the model to be loaded."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load"]
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0


class OllamaAnswerMessage(Struct):
    role: Literal["assistant"]
    content: str
    thinking: str | None = None
    tool_calls: list[dict[str, Any]] = []


class OllamaChatAnswer(OllamaEnd, kw_only=True):
    message: OllamaAnswerMessage


class OllamaGenerateAnswer(OllamaEnd, kw_only=True):
    response: str


class OllamaTags(Struct):
    models: list[dict[str, Any]]


class OllamaModel(Struct):
    details: dict[str, Any]
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class ModelCard(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int
    max_model_len: int


class ModelList(Struct):
    object: Literal["list"]
    data: list[ModelCard]


class Health(Struct):
    status: Literal["ok"]


class Version(Struct):
    version: str


class ErrorDetail(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Struct):
    error: ErrorDetail


class OllamaErrorAnswer(Struct):
    error: str


class AnthropicErrorDetail(Struct):
    type: str
    message: str


class AnthropicErrorAnswer(Struct):
    type: Literal["error"]
    error: AnthropicErrorDetail
