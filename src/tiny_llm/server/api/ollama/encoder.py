"""How answers of /api/chat and /api/generate are written; what /api/tags, /api/show and /api/version say."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ....engine import Event
from ...errors import ApiError
from ...models import Models, ServedModel
from ...protocols import ServerTokenizer
from ...settings import Settings
from ..chat import ChatEncoder
from ..job import Job, Usage, encode
from ..outputs import ChatChoice, Choice
from ..pieces import AnswerReader
from .fields import ShowFields

# Of Ollama's interface, as far as this server has it: some clients refuse older ones.
VERSION = "0.12.11"


class OllamaEncoder(ChatEncoder):
    """Of one request. The text is in the `message` of a chat, and in `response` otherwise.

    Made of the deltas of OpenAI's interface. Durations count from here, in nanoseconds: until the first
    token the prompt is evaluated.
    """

    id_prefix = "ollama"

    def __init__(self, kind: Literal["message", "response"]):
        self._kind = kind
        self._start = time.perf_counter_ns()

    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> "TimedChoice":
        return TimedChoice(ChatChoice(index, tokenizer, reader))

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return _line({**self._said(job, delta, delta.get("delta")), "done": False})

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        yield _line({**self._said(job, {}, {}), **self._end(job, usage)})

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        yield _line({"error": error.message})

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        given = job.choices[0].whole() if job.choices else {}
        return {**self._said(job, given, given.get("message")), **self._end(job, usage)}

    def _said(self, job: Job, entry: dict[str, Any], message: dict[str, Any] | None) -> dict[str, Any]:
        """A part of an answer, or a whole one; an `entry` without a message has a text."""
        message = message or {"content": entry.get("text")}
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
        choice, now = job.choices[0], time.perf_counter_ns()
        first = (choice.first_at if isinstance(choice, TimedChoice) else None) or now
        return {
            "done": True,
            "done_reason": "length" if choice.finish_reason == "length" else "stop",
            "total_duration": now - self._start,
            "load_duration": 0,
            "prompt_eval_count": usage.prompt,
            "prompt_eval_duration": first - self._start,
            "eval_count": usage.generated,
            "eval_duration": now - first,
        }


class TimedChoice:
    """A choice that knows when its first token came."""

    def __init__(self, choice: Choice):
        self._choice = choice
        self.first_at: int | None = None  # of the clock in nanoseconds
        self.finish_reason: str | None = None

    @property
    def reasoning_tokens(self) -> int:
        return self._choice.reasoning_tokens

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        if self.first_at is None:
            self.first_at = time.perf_counter_ns()
        yield from self._choice.deltas(event)
        self.finish_reason = self._choice.finish_reason

    def whole(self) -> dict[str, Any]:
        return self._choice.whole()


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _call(number: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = msgspec.json.decode(function["arguments"])
    return {
        "id": call["id"],
        "function": {"index": call.get("index", number), "name": function["name"], "arguments": arguments},
    }


def _line(record: dict[str, Any]) -> bytes:
    return encode(record) + b"\n"


def tags(models: Models) -> dict[str, Any]:
    return {"models": [_tag(model) for model in models]}


def show(fields: ShowFields, model: ServedModel, settings: Settings) -> dict[str, Any]:
    family = model.engine.llm.family
    capabilities = {"completion": True, "tools": model.takes_tools, "thinking": model.takes_thinking}
    return {
        "details": _details(model),
        "model_info": {
            "general.architecture": family,
            f"{family}.context_length": model.engine.context,
        },
        "capabilities": [name for name, has in capabilities.items() if has],
        "modified_at": timestamp(model.created),
    }


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
