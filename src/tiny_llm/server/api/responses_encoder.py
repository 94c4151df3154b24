"""How answers of /v1/responses are written: output items, and typed events with numbers."""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...engine import Event
from ..errors import ApiError
from ..models import ServerTokenizer
from .chat import chat_logprobs
from .job import AnswerEncoder, Job, ReadChoice, Usage, server_sent
from .pieces import AnswerReader, Block, Content, Step

PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}  # of the ids of items
# For each kind of block, what its events are called.
EVENTS = {"text": "output_text", "reasoning": "reasoning_text", "call": "function_call_arguments"}


class InputTokens(Struct):
    cached_tokens: int
    cache_write_tokens: int


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


class ResponseTokens(Struct):
    object: Literal["response.input_tokens"]
    input_tokens: int


class ResponseEncoder(AnswerEncoder):
    """Of one request. Events are numbered, so an encoder is for one answer only.

    repeated: what the answer repeats of the request, as JSON: as objects it would take far more memory.
    """

    id_prefix = "resp"
    _choice: "ResponseChoice"  # of a job there is one from the start

    def __init__(self, repeated: Mapping[str, bytes]):
        self._repeated = {name: msgspec.Raw(value) for name, value in repeated.items()}
        self._number = 0

    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> "ResponseChoice":
        self._choice = ResponseChoice(tokenizer, reader)
        return self._choice

    def begin(self, job: Job) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self.chunk(job, {"type": kind, "response": self._response(job, "in_progress", None)})

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        event = {"type": delta["type"], "sequence_number": self._number, **delta}
        self._number += 1
        return server_sent(event, delta["type"])

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        whole = self.whole(job, usage)
        yield self.chunk(job, {"type": f"response.{whole['status']}", "response": whole})

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        self._choice.cut()
        failed = self._response(job, "failed", None)
        failed["error"] = {"code": "server_error", "message": error.message}  # of the codes that clients know
        yield self.chunk(job, {"type": "response.failed", "response": failed})

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        cut = self._choice.finish_reason == "length"
        response = self._response(job, "incomplete" if cut else "completed", usage)
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response

    def _response(self, job: Job, status: str, usage: Usage | None) -> dict[str, Any]:
        return {
            "id": job.id,
            "object": "response",
            "created_at": job.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": job.model.name,
            **self._choice.whole(),
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
            **self._repeated,
        }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": InputTokens(usage.cached, 0),
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.generated,
    }


class ResponseChoice(ReadChoice):
    """The output items. A block of the answer is an item, of one part."""

    def __init__(self, tokenizer: ServerTokenizer, reader: AnswerReader):
        super().__init__(tokenizer, reader)
        self._new: list[dict[str, Any]] = []  # log probabilities of tokens whose text has not been sent
        self._cut: Block | None = None  # what has no end of its own

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        pieces, self.finish_reason = self._reader.read(event)
        if event.logprobs:
            self._new += chat_logprobs(event.logprobs, self._tokenizer)["content"]
        for piece in pieces:
            for step in self._blocks.add(piece):
                yield from self._events(step)
            if not isinstance(piece, Content):
                self._new = []  # of reasoning or a call
        if self.finish_reason == "length":
            self.cut()
        if self.finish_reason is not None:
            for step in self._blocks.close():
                self._take_logprobs(step.block)  # such as that of the end token
                yield from self._events(step)

    def cut(self) -> None:
        """By the limit of tokens or a fault: the open item is not complete."""
        self._cut = self._blocks.open

    def whole(self) -> dict[str, Any]:
        return {"output": [self._ended(block) for block in self._blocks.all]}

    def _take_logprobs(self, block: Block) -> list[dict[str, Any]]:
        """The new ones, which are those of this text."""
        new, self._new = self._new, []
        block.logprobs += new
        return new

    def _ended(self, block: Block) -> dict[str, Any]:
        return _item(block, "incomplete" if block is self._cut else "completed")

    def _events(self, step: Step) -> Iterator[dict[str, Any]]:
        block = step.block
        if step.change == "opened":
            block.id = f"{PREFIXES[block.kind]}_{secrets.token_hex(16)}"
        kind, position = f"response.{EVENTS[block.kind]}", {"item_id": block.id, "output_index": block.index}
        if block.call is None:
            position["content_index"] = 0
        match step.change:
            case "opened":
                added = {"output_index": block.index, "item": _item(block, "in_progress")}
                yield {"type": "response.output_item.added", **added}
                if block.kind == "text":
                    yield {"type": "response.content_part.added", **position, "part": _part("", [])}
            case "added":
                logprobs = {"logprobs": self._take_logprobs(block)} if block.kind == "text" else {}
                yield {"type": f"{kind}.delta", **position, "delta": step.text, **logprobs}
            case "closed":
                yield {"type": f"{kind}.done", **position, **_done(block)}
                if block.kind == "text":
                    part = _part(block.text, block.logprobs)
                    yield {"type": "response.content_part.done", **position, "part": part}
                done = {"output_index": block.index, "item": self._ended(block)}
                yield {"type": "response.output_item.done", **done}


def _done(block: Block) -> dict[str, Any]:
    if block.call is not None:
        return {"name": block.call.name, "arguments": block.text}
    return {"text": block.text, **({"logprobs": block.logprobs} if block.kind == "text" else {})}


def _item(block: Block, status: str) -> dict[str, Any]:
    head = {"id": block.id, "status": status}
    complete = status != "in_progress"
    if block.call is not None:
        call = {"type": "function_call", "call_id": block.call.id, "name": block.call.name}
        return {**head, **call, "arguments": block.text if complete else ""}
    if block.kind == "reasoning":
        content = [{"type": "reasoning_text", "text": block.text}] if complete else []
        return {**head, "type": "reasoning", "summary": [], "content": content}
    content = [_part(block.text, block.logprobs)] if complete else []
    return {**head, "type": "message", "role": "assistant", "content": content}


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
