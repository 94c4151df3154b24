"""How answers of /v1/responses are written: output items, and typed events with numbers."""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ....engine import Event
from ...errors import ApiError
from ...protocols import ServerTokenizer
from ..chat import ChatEncoder
from ..job import Job, Usage, encode
from ..outputs import ReadChoice, chat_logprobs
from ..pieces import AnswerReader, Block, Blocks, Closed, Content, Opened, Step
from .fields import ResponseFields

PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}


class ResponseEncoder(ChatEncoder):
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
        return b"event: " + str(delta["type"]).encode() + b"\ndata: " + encode(event) + b"\n\n"

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


def repeat(fields: ResponseFields) -> dict[str, bytes]:
    """What an answer repeats of its request, as JSON, with the values of fields that were not given."""
    repeated = {
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "reasoning": {"effort": fields.reasoning.effort if fields.reasoning else None, "summary": None},
        "temperature": 1.0 if fields.temperature is None else fields.temperature,
        "text": {"format": (fields.text and fields.text.format) or {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": fields.tools or [],
        "top_logprobs": fields.top_logprobs or 0,
        "top_p": 1.0 if fields.top_p is None else fields.top_p,
        "user": fields.user,
        "metadata": fields.metadata or {},
    }
    return {name: encode(value) for name, value in repeated.items()}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.generated,
    }


class ResponseChoice(ReadChoice):
    """The output items. A block of the answer is an item, of one part."""

    def __init__(self, tokenizer: ServerTokenizer, reader: AnswerReader):
        super().__init__(reader)
        self._tokenizer = tokenizer
        self._blocks = Blocks()
        self._ids: list[str] = []
        self._new: list[dict[str, Any]] = []  # log probabilities of tokens whose text has not been sent
        self._logprobs: dict[int, list[dict[str, Any]]] = {}  # of the texts, by the index of their block
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
                self._taken(step.block)  # such as that of the end token
                yield from self._events(step)

    def cut(self) -> None:
        """By the limit of tokens or a fault: the open item is not complete."""
        self._cut = self._blocks.open

    def whole(self) -> dict[str, Any]:
        return {"output": [self._ended(block) for block in self._blocks.blocks]}

    def _events(self, step: Step) -> Iterator[dict[str, Any]]:
        block = step.block
        if isinstance(step, Opened):
            self._ids.append(f"{PREFIXES[block.kind]}_{secrets.token_hex(16)}")
        position = {"item_id": self._ids[block.index], "output_index": block.index}
        item = {"output_index": block.index, "item": self._item(block, "in_progress")}
        match step:
            case Opened():
                yield {"type": "response.output_item.added", **item}
                if block.kind == "text":
                    part = {"content_index": 0, "part": _part("", [])}
                    yield {"type": "response.content_part.added", **position, **part}
            case Closed():
                yield from self._ends(block, position)
                item["item"] = self._ended(block)
                yield {"type": "response.output_item.done", **item}
            case _:
                position["content_index"] = 0
                if block.kind == "text":
                    logprobs = {"logprobs": self._taken(block)}
                    yield {"type": "response.output_text.delta", **position, "delta": step.text, **logprobs}
                else:
                    yield {"type": "response.reasoning_text.delta", **position, "delta": step.text}

    def _ends(self, block: Block, position: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if block.call is not None:
            written = block.call.arguments
            yield {"type": "response.function_call_arguments.delta", **position, "delta": written}
            done = {"name": block.call.name, "arguments": written}
            yield {"type": "response.function_call_arguments.done", **position, **done}
            return
        position = {**position, "content_index": 0}
        if block.kind == "reasoning":
            yield {"type": "response.reasoning_text.done", **position, "text": block.text}
            return
        logprobs = self._logprobs.get(block.index, [])
        yield {"type": "response.output_text.done", **position, "text": block.text, "logprobs": logprobs}
        yield {"type": "response.content_part.done", **position, "part": _part(block.text, logprobs)}

    def _taken(self, block: Block) -> list[dict[str, Any]]:
        """The new log probabilities, which are those of this text."""
        new, self._new = self._new, []
        if new:
            self._logprobs.setdefault(block.index, []).extend(new)
        return new

    def _ended(self, block: Block) -> dict[str, Any]:
        return self._item(block, "incomplete" if block is self._cut else "completed")

    def _item(self, block: Block, status: str) -> dict[str, Any]:
        head = {"id": self._ids[block.index], "status": status}
        complete = status != "in_progress"
        if block.call is not None:
            arguments = block.call.arguments if complete else ""
            call = {"call_id": block.call.id, "name": block.call.name, "arguments": arguments}
            return {**head, "type": "function_call", **call}
        if block.kind == "reasoning":
            content = [{"type": "reasoning_text", "text": block.text}] if complete else []
            return {**head, "type": "reasoning", "summary": [], "content": content}
        logprobs = self._logprobs.get(block.index, [])
        content = [_part(block.text, logprobs)] if complete else []
        return {**head, "type": "message", "role": "assistant", "content": content}


def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
