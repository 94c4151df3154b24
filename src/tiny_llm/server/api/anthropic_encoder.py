"""How answers of /v1/messages are written: content blocks, and typed events."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...engine import Event
from ..errors import ANTHROPIC_PATH, ApiError
from ..models import ServerTokenizer
from .job import AnswerEncoder, Job, ReadChoice, Usage, server_sent
from .pieces import AnswerReader, Block, Step

# For each kind of block, the type of the event that adds to it, and the field of what is added.
DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}


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


class AnthropicTokens(Struct):
    input_tokens: int


class AnthropicEncoder(AnswerEncoder):
    """Of one request for `max_tokens`. It keeps nothing of the messages, which may be large.

    edits: the request allows the server to edit the messages.
    """

    id_prefix = "msg"
    _choice: "AnthropicChoice"  # of a job there is one from the start

    def __init__(self, max_tokens: int, edits: bool):
        self._max_tokens = max_tokens
        # Nothing is removed from the messages, whatever the request allows.
        self._edits: dict[str, Any] = {"context_management": {"applied_edits": []}} if edits else {}

    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> "AnthropicChoice":
        self._choice = AnthropicChoice(tokenizer, reader)
        return self._choice

    def started(self, job: Job, usage: Usage) -> Iterator[bytes]:
        yield self.chunk(job, {"type": "message_start", "message": self._message(job, usage)})

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return server_sent(delta, delta["type"])

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        ended = {"delta": self._end(job), "usage": _usage(usage), **self._edits}
        yield self.chunk(job, {"type": "message_delta", **ended})
        yield self.chunk(job, {"type": "message_stop"})

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        yield server_sent(error.answer(ANTHROPIC_PATH), "error")

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        return {**self._message(job, usage), **self._choice.whole(), **self._end(job), **self._edits}

    def _message(self, job: Job, usage: Usage) -> dict[str, Any]:
        return {
            "id": job.id,
            "type": "message",
            "role": "assistant",
            "model": job.model.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(usage),
        }

    def _end(self, job: Job) -> dict[str, str | None]:
        """The reason differs where the context was the limit: it had room for less than was asked for."""
        reason, limit = self._choice.stop_reason, job.requests[0].sampling.max_tokens
        if reason == "max_tokens" and limit != self._max_tokens:
            reason = "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": self._choice.stop_sequence}


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic counts cached tokens apart."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.generated,
    }


class AnthropicChoice(ReadChoice):
    """The content. A block of the answer is a content block."""

    stop_reason: str | None = None
    stop_sequence: str | None = None

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        for step in self._steps(event):
            yield _event(step)
        if self.finish_reason is not None:
            self.stop_sequence = event.stop_string
            self.stop_reason = "end_turn" if event.stop_string is None else "stop_sequence"
            if self.finish_reason == "length":
                self.stop_reason = "max_tokens"
            elif self._blocks.calls:
                self.stop_reason = "tool_use"

    def whole(self) -> dict[str, Any]:
        return {"content": [_content(block, complete=True) for block in self._blocks.all]}


def _event(step: Step) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "content_block_stop", "index": step.block.index}
    if step.change == "opened":
        event |= {"type": "content_block_start", "content_block": _content(step.block, complete=False)}
    elif step.change == "added":
        kind, name = DELTAS[step.block.kind]
        event |= {"type": "content_block_delta", "delta": {"type": kind, name: step.text}}
    return event


def _content(block: Block, *, complete: bool) -> dict[str, Any]:
    text = block.text if complete else ""
    if block.call is not None:
        given = msgspec.json.decode(text or "{}")
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": given}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}
