"""How answers of /v1/messages are written: content blocks, and typed events."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ....engine import Event
from ...errors import ANTHROPIC_PATH, ApiError
from ...protocols import ServerTokenizer
from ..chat import ChatEncoder
from ..job import Job, Usage, encode
from ..outputs import ReadChoice
from ..pieces import Added, AnswerReader, Block, Blocks, Closed, Opened, Step


class AnthropicEncoder(ChatEncoder):
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
        self._choice = AnthropicChoice(reader)
        return self._choice

    def started(self, job: Job, usage: Usage) -> Iterator[bytes]:
        yield self.chunk(job, {"type": "message_start", "message": self._message(job, _usage(usage))})

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return b"event: " + str(delta["type"]).encode() + b"\ndata: " + encode(delta) + b"\n\n"

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        ended = {"delta": self._end(job), "usage": _usage(usage), **self._edits}
        yield self.chunk(job, {"type": "message_delta", **ended})
        yield self.chunk(job, {"type": "message_stop"})

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        yield b"event: error\ndata: " + error.encode(ANTHROPIC_PATH) + b"\n\n"

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        message = self._message(job, _usage(usage))
        return {**message, **self._choice.whole(), **self._end(job), **self._edits}

    def _end(self, job: Job) -> dict[str, str | None]:
        """The reason differs where the context was the limit: it had room for less than was asked for."""
        end, limit = self._choice.end, job.requests[0].sampling.max_tokens
        if end["stop_reason"] == "max_tokens" and limit != self._max_tokens:
            return {**end, "stop_reason": "model_context_window_exceeded"}
        return end

    def _message(self, job: Job, usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": job.id,
            "type": "message",
            "role": "assistant",
            "model": job.model.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }


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

    def __init__(self, reader: AnswerReader):
        super().__init__(reader)
        self._blocks = Blocks()
        self.end: dict[str, str | None] = {"stop_reason": None, "stop_sequence": None}

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        pieces, self.finish_reason = self._reader.read(event)
        for piece in pieces:
            for step in self._blocks.add(piece):
                yield from _events(step)
        if self.finish_reason is not None:
            for step in self._blocks.close():
                yield from _events(step)
            self.end = {"stop_reason": self._reason(event), "stop_sequence": event.stop_string}

    def whole(self) -> dict[str, Any]:
        return {"content": [_content(block, complete=True) for block in self._blocks.blocks]}

    def _reason(self, event: Event) -> str:
        if self.finish_reason == "length":
            return "max_tokens"
        if any(block.call is not None for block in self._blocks.blocks):
            return "tool_use"
        return "end_turn" if event.stop_string is None else "stop_sequence"


def _events(step: Step) -> Iterator[dict[str, Any]]:
    block, position = step.block, {"index": step.block.index}
    match step:
        case Opened():
            yield {
                "type": "content_block_start",
                **position,
                "content_block": _content(block, complete=False),
            }
            if block.call is not None:
                delta = {"type": "input_json_delta", "partial_json": block.call.arguments}
                yield {"type": "content_block_delta", **position, "delta": delta}
        case Added(_, text) if block.kind == "text":
            yield {"type": "content_block_delta", **position, "delta": {"type": "text_delta", "text": text}}
        case Added(_, text):
            delta = {"type": "thinking_delta", "thinking": text}
            yield {"type": "content_block_delta", **position, "delta": delta}
        case Closed():
            yield {"type": "content_block_stop", **position}


def _content(block: Block, *, complete: bool) -> dict[str, Any]:
    if block.call is not None:
        given = msgspec.json.decode(block.call.arguments) if complete else {}
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": given}
    text = block.text if complete else ""
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}
