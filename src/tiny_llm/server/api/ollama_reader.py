"""POST /api/chat and /api/generate: their fields, and those of a chat or completion that mean the same."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..errors import bad_value, renaming, unsupported
from ..models import ServedModel
from ..settings import Settings
from .chat import prepare_chat
from .completions import prepare_completion
from .fields import (
    ChatFields,
    CompletionFields,
    Count,
    Fraction,
    Int64,
    Message,
    Penalty,
    RepetitionPenalty,
    RequestFields,
    ResponseFormat,
    StopString,
    Temperature,
    Tool,
    ToolCall,
    TopK,
    TopP,
)
from .job import Job
from .ollama_encoder import OllamaEncoder
from .sampling import context_exceeded, new_id

LATEST = ":latest"  # what clients add to a name without a tag
# Ollama's, where its models have no others.
TEMPERATURE, TOP_K, TOP_P = 0.8, 40, 0.9
NEUTRAL = {"tfs_z": 1, "typical_p": 1, "mirostat": 0}
EFFORTS = ("low", "medium", "high")
# Our names of what a request may be refused for.
RENAMED = {
    "chat_template_kwargs.enable_thinking": "think",
    "response_format": "format",
    "stop": "options.stop",
}


class OllamaOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """How an answer is made. Those of the last group choose how Ollama uses its hardware: without effect."""

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    min_p: Fraction | None = None
    seed: Int64 | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    num_ctx: Count | None = None
    stop: StopString | list[StopString] | None = None
    repeat_penalty: RepetitionPenalty | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None

    # Other samplers, of which only the neutral value is accepted.
    tfs_z: float | None = None
    typical_p: float | None = None
    mirostat: int | None = None
    mirostat_eta: float | None = None
    mirostat_tau: float | None = None
    penalize_newline: bool | None = None

    num_keep: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    num_thread: int | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    vocab_only: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    embedding_only: bool | None = None


class OllamaModelFields(RequestFields, kw_only=True):
    """A request that names a model."""

    def __post_init__(self) -> None:
        if self.model is not None:
            self.model = self.model.removesuffix(LATEST)


class ShowFields(OllamaModelFields, kw_only=True):
    name: str | None = None  # of older clients, instead of `model`
    verbose: bool | None = None

    def __post_init__(self) -> None:
        self.model = self.model or self.name
        super().__post_init__()


class OllamaFields(OllamaModelFields, kw_only=True):
    """What /api/chat and /api/generate have in common. A model stays loaded, whatever `keep_alive` says."""

    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: OllamaOptions | None = None
    think: bool | str | None = None
    keep_alive: str | float | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None


class OllamaFunctionCall(Struct, kw_only=True):
    name: str
    arguments: dict[str, Any]


class OllamaCall(Struct, kw_only=True):
    function: OllamaFunctionCall
    id: str | None = None


class OllamaMessage(Struct, kw_only=True):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaChat(OllamaFields, kw_only=True):
    messages: list[OllamaMessage] | None = None
    tools: list[Tool] | None = None


class OllamaGenerate(OllamaFields, kw_only=True):
    """`raw` prompts pass by the chat template. Fields of the last group are refused unless they are empty."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None

    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None


def prepare_ollama_chat(fields: OllamaChat, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    encoder = OllamaEncoder("message")
    messages = list(read_messages(fields.messages or []))
    return chat_job(fields, messages, fields.tools, model, settings, encoder)


def prepare_generate(fields: OllamaGenerate, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    encoder = OllamaEncoder("response")
    for name in ("suffix", "template", "context"):
        if getattr(fields, name):
            raise unsupported(name, "this server does not support it")
    check_images("images", fields.images)
    if not (fields.prompt and fields.raw):
        system = [Message(role="system", content=fields.system)] if fields.system else []
        messages = [*system, Message(role="user", content=fields.prompt)] if fields.prompt else []
        return chat_job(fields, messages, None, model, settings, encoder)
    for name in ("system", "think", "logprobs", "top_logprobs"):
        if getattr(fields, name):
            raise bad_value(name, "none beside raw")
    completion = CompletionFields(prompt=fields.prompt, **common_fields(fields))
    with renaming(RENAMED):
        return with_limit(prepare_completion(completion, model, settings, encoder), fields.options)


def chat_job(
    fields: OllamaFields,
    messages: list[Message],
    tools: list[Tool] | None,
    model: ServedModel,
    settings: Settings,
    encoder: OllamaEncoder,
) -> Job:
    """Without messages a client only wants the model to be loaded: it is loaded already."""
    if not messages:
        stream, job_id = fields.stream is not False, new_id("")
        return Job(
            model=model, requests=[], choices=[], encoder=encoder, stream=stream, prompt_tokens=0, id=job_id
        )
    chat = ChatFields(
        messages=messages,
        tools=tools,
        logprobs=fields.logprobs,
        top_logprobs=fields.top_logprobs,
        continue_final_message=messages[-1].role == "assistant" and not messages[-1].tool_calls,
        chat_template_kwargs={"enable_thinking": read_think(fields)},
        **common_fields(fields),
    )
    with renaming(RENAMED):
        return with_limit(prepare_chat(chat, model, settings, encoder), fields.options)


def common_fields(fields: OllamaFields) -> dict[str, Any]:
    """Those of a chat and a completion alike. Streaming is the default."""
    options = fields.options or OllamaOptions()
    for name, neutral in NEUTRAL.items():
        if getattr(options, name) not in (None, neutral):
            raise unsupported(f"options.{name}", f"expected {neutral}: this server has no such sampler")
    penalty = options.repeat_penalty
    if penalty not in (None, 1) and options.repeat_last_n not in (None, -1, 0):
        sentence = "expected -1 or 0: the penalty is for all tokens of prompt and answer, or for none"
        raise unsupported("options.repeat_last_n", sentence)
    return {
        "stream": fields.stream is not False,
        "temperature": TEMPERATURE if options.temperature is None else options.temperature,
        "top_k": (TOP_K if options.top_k is None else options.top_k) or -1,
        "top_p": TOP_P if options.top_p is None else options.top_p,
        "min_p": options.min_p,
        "seed": None if options.seed == -1 else options.seed,
        "stop": options.stop,
        "repetition_penalty": None if options.repeat_last_n == 0 else penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "response_format": read_format(fields),
    }


def with_limit(job: Job, options: OllamaOptions | None) -> Job:
    """The job with the smaller one of `num_predict` and the room after the prompt as limit of its answer."""
    options = options or OllamaOptions()
    context = min(options.num_ctx or job.model.engine.context, job.model.engine.context)
    room = context - job.prompt_tokens
    if room < 1:
        raise context_exceeded(job.prompt_tokens, 1, context, "options.num_ctx")
    if options.num_predict == 0:
        raise bad_value("options.num_predict", "at least 1, or -1 for no limit")
    limit = room if (options.num_predict or -1) < 0 else min(room, options.num_predict or room)
    limited = [replace(each, sampling=replace(each.sampling, max_tokens=limit)) for each in job.requests]
    return replace(job, requests=limited)


def read_messages(messages: list[OllamaMessage]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        check_images(f"messages[{index}].images", message.images)
        calls = [call.function for call in message.tool_calls or ()]
        yield Message(
            role=message.role,
            content=message.content or "",
            reasoning_content=message.thinking,
            tool_calls=[ToolCall.of(call.name, call.arguments) for call in calls] or None,
        )


def check_images(param: str, images: list[str] | None) -> None:
    if images:
        raise unsupported(param, "expected none: this model reads text only")


def read_think(fields: OllamaFields) -> bool:
    """An effort switches thinking on; there is no less or more of it."""
    if isinstance(fields.think, str) and fields.think not in EFFORTS:
        raise bad_value("think", f"true, false, or one of {', '.join(EFFORTS)}")
    return bool(fields.think)


def read_format(fields: OllamaFields) -> ResponseFormat | None:
    match fields.format:
        case None | "":
            return None
        case "json":
            return ResponseFormat(type="json_object")
        case dict() as schema:
            return ResponseFormat.of(schema)
        case _:
            raise bad_value("format", "json or a JSON schema")
