"""What is around the choices of an answer, whole and in a stream."""

from collections.abc import Iterator
from typing import Any

import msgspec

from ..errors import ApiError
from .job import Job, Usage

DONE = b"data: [DONE]\n\n"
encode = msgspec.json.Encoder().encode


class ChoicesForm:
    """Of /v1/chat/completions and /v1/completions: `kind` and `chunk_kind` name an answer and an event."""

    def __init__(self, kind: str, chunk_kind: str, include_usage: bool, id_prefix: str):
        self.id_prefix = id_prefix
        self._kind = kind
        self._chunk_kind = chunk_kind
        self._include_usage = include_usage
        self._tail: dict[str, Any] = {"usage": None} if include_usage else {}

    def begin(self, job: Job) -> Iterator[bytes]:
        yield from ()

    def started(self, job: Job, usage: Usage) -> Iterator[bytes]:
        yield from ()

    def chunk(self, job: Job, delta: dict[str, Any]) -> bytes:
        return _data({**_head(job, self._chunk_kind), "choices": [delta], **self._tail})

    def end(self, job: Job, usage: Usage) -> Iterator[bytes]:
        if self._include_usage:
            yield _data({**_head(job, self._chunk_kind), "choices": [], "usage": _usage(usage)})
        yield DONE

    def fail(self, job: Job, error: ApiError) -> Iterator[bytes]:
        """An error ends a stream without [DONE]."""
        yield _data(error.body)

    def whole(self, job: Job, usage: Usage) -> dict[str, Any]:
        choices = [choice.whole() for choice in job.choices]
        return {**_head(job, self._kind), "choices": choices, "usage": _usage(usage)}


def _head(job: Job, kind: str) -> dict[str, Any]:
    return {"id": job.id, "object": kind, "created": job.created, "model": job.model.name}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _data(record: dict[str, Any]) -> bytes:
    return b"data: " + encode(record) + b"\n\n"
