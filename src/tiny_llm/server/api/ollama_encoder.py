"""How answers of /api/chat and /api/generate are written; what /api/tags, /api/show and /api/version say."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ..errors import ApiError
from ..models import Models, ServedModel, ServerTokenizer
from ..settings import Settings
from .chat import ChatChoice
from .job import AnswerEncoder, Job, Usage, encode
from .pieces import AnswerReader

# Of Ollama's interface, as far as this server has it: some clients refuse older ones.
VERSION = "0.12.11"


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


class OllamaEncoder(AnswerEncoder):
    """Of one request. The text is in the `message` of a chat, and in `response` otherwise.

    Made of the deltas of OpenAI's interface. Durations count from here, in nanoseconds: until the first
    token the prompt is evaluated.
    """

    id_prefix = "ollama"
    lines = True

    def __init__(self, kind: Literal["message", "response"]):
        self._kind = kind
        self._start = time.perf_counter_ns()

    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> ChatChoice:
        return ChatChoice(index, tokenizer, reader)

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return _line({**self._said(job, delta), "done": False})

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        yield _line({**self._said(job, {}), **self._end(job, usage)})

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        yield _line({"error": error.message})

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        whole = job.choices[0].whole() if job.choices else {}
        return {**self._said(job, whole), **self._end(job, usage)}

    def _said(self, job: Job, entry: dict[str, Any]) -> dict[str, Any]:
        """A part of an answer, or a whole one; the `entry` of a completion has a text, others a message."""
        message = entry.get("delta") or entry.get("message") or {"content": entry.get("text")}
        text, thoughts = message.get("content") or "", message.get("reasoning_content")
        thinking = {"thinking": thoughts} if thoughts else {}
        head = {"model": job.model.name, "created_at": timestamp(time.time())}
        logprobs = {"logprobs": entry["logprobs"]["content"]} if entry.get("logprobs") else {}
        if self._kind == "response":
            return {**head, "response": text, **thinking, **logprobs}
        calls = [_call(number, call) for number, call in enumerate(message.get("tool_calls") or ())]
        said = {"role": "assistant", "content": text, **thinking, **({"tool_calls": calls} if calls else {})}
        return {**head, "message": said, **logprobs}

    def _end(self, job: Job, usage: Usage) -> dict[str, Any]:
        """Without choices, the request only wanted the model to be loaded, as it always is."""
        if not job.choices:
            return {"done": True, "done_reason": "load"}
        now = time.perf_counter_ns()
        first = self.answered_at or now
        return {
            "done": True,
            "done_reason": "length" if job.choices[0].finish_reason == "length" else "stop",
            "total_duration": now - self._start,
            "load_duration": 0,
            "prompt_eval_count": usage.prompt,
            "prompt_eval_duration": first - self._start,
            "eval_count": usage.generated,
            "eval_duration": now - first,
        }


def _call(number: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = msgspec.json.decode(function["arguments"])
    place = {"index": call.get("index", number), "name": function["name"]}
    return {"id": call["id"], "function": {**place, "arguments": arguments}}


def _line(record: dict[str, Any]) -> bytes:
    return encode(record) + b"\n"


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def tags(models: Models) -> OllamaTags:
    return OllamaTags([_tag(model) for model in models])


def show(fields: Any, model: ServedModel, settings: Settings) -> OllamaModel:
    family = model.engine.llm.family
    capabilities = {"completion": True, "tools": model.takes_tools, "thinking": model.takes_thinking}
    return OllamaModel(
        details=_details(model),
        model_info={"general.architecture": family, f"{family}.context_length": model.engine.context},
        capabilities=[name for name, has in capabilities.items() if has],
        modified_at=timestamp(model.created),
    )


def _tag(model: ServedModel) -> dict[str, Any]:
    """`size` is the memory of the weights; the digest, which some clients insist on, is empty."""
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": timestamp(model.created),
        "size": model.engine.llm.weight_bytes,
        "digest": "",
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    """Clients insist on all of these; the empty ones are not known."""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": model.engine.llm.family,
        "families": [model.engine.llm.family],
        "parameter_size": "",
        "quantization_level": "",
    }
