"""From the fields of Ollama's interface to those of a chat or a completion, which mean the same."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...errors import bad_value, renaming, unsupported
from ...models import ServedModel
from ...settings import Settings
from ..chat import prepare_chat
from ..completions import prepare_completion
from ..fields import ChatFields, CompletionFields, Message, ResponseFormat, ToolCall
from ..job import Job, new_id
from ..sampling import context_exceeded
from .encoder import OllamaEncoder, TimedChoice
from .fields import OllamaChat, OllamaFields, OllamaGenerate, OllamaMessage, OllamaOptions

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


def prepare_ollama_chat(fields: OllamaChat, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    encoder = OllamaEncoder("message")
    if not fields.messages:
        return only_load(fields, model, encoder)
    messages = list(read_messages(fields.messages))
    return chat_job(fields, messages, model, settings, encoder)


def prepare_generate(fields: OllamaGenerate, model: ServedModel, settings: Settings) -> Job:
    """Renders and encodes the prompt, which takes time: not for the event loop."""
    encoder = OllamaEncoder("response")
    for name in ("suffix", "template", "context"):
        if getattr(fields, name):
            raise unsupported(name, "this server does not support it")
    check_images("images", fields.images)
    if not fields.prompt:
        return only_load(fields, model, encoder)
    if not fields.raw:
        system = [Message(role="system", content=fields.system)] if fields.system else []
        messages = [*system, Message(role="user", content=fields.prompt)]
        return chat_job(fields, messages, model, settings, encoder)
    for name in ("system", "think", "logprobs", "top_logprobs"):
        if getattr(fields, name):
            raise bad_value(name, "none beside raw")
    completion = CompletionFields(prompt=fields.prompt, **common_fields(fields))
    with renaming(RENAMED):
        job = prepare_completion(completion, model, settings)
    job = replace(job, encoder=encoder, choices=[TimedChoice(choice) for choice in job.choices])
    return with_limit(job, fields.options or OllamaOptions())


def chat_job(
    fields: OllamaFields,
    messages: list[Message],
    model: ServedModel,
    settings: Settings,
    encoder: OllamaEncoder,
) -> Job:
    chat = ChatFields(
        messages=messages,
        tools=fields.tools if isinstance(fields, OllamaChat) else None,
        logprobs=fields.logprobs,
        top_logprobs=fields.top_logprobs,
        continue_final_message=messages[-1].role == "assistant" and not messages[-1].tool_calls,
        chat_template_kwargs={"enable_thinking": read_think(fields)},
        **common_fields(fields),
    )
    with renaming(RENAMED):
        job = prepare_chat(chat, model, settings, encoder)
    return with_limit(job, fields.options or OllamaOptions())


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


def with_limit(job: Job, options: OllamaOptions) -> Job:
    """The job with the smaller one of `num_predict` and the room after the prompt as limit of its answer."""
    context = min(options.num_ctx or job.model.engine.context, job.model.engine.context)
    room = context - job.prompt_tokens
    if room < 1:
        raise context_exceeded(job.prompt_tokens, 1, context, "options.num_ctx")
    if options.num_predict == 0:
        raise bad_value("options.num_predict", "at least 1, or -1 for no limit")
    limit = room if (options.num_predict or -1) < 0 else min(room, options.num_predict or room)
    limited = [replace(each, sampling=replace(each.sampling, max_tokens=limit)) for each in job.requests]
    return replace(job, requests=limited, lines=True)


def only_load(fields: OllamaFields, model: ServedModel, encoder: OllamaEncoder) -> Job:
    """Clients load a model by a request without a prompt: here it is loaded already."""
    stream = fields.stream is not False
    return Job(
        model=model,
        requests=[],
        choices=[],
        encoder=encoder,
        stream=stream,
        prompt_tokens=0,
        id=new_id(""),
        lines=True,
    )


def read_messages(messages: list[OllamaMessage]) -> Iterator[Message]:
    for index, message in enumerate(messages):
        check_images(f"messages[{index}].images", message.images)
        calls = [
            ToolCall.of(call.function.name, call.function.arguments) for call in message.tool_calls or ()
        ]
        yield Message(
            role=message.role,
            content=message.content or "",
            reasoning_content=message.thinking,
            tool_calls=calls or None,
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
