"""A checked request: what goes to the engine, the choices that its answers fill, and what is around them."""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...engine import EngineRequest
from ...generation.defaults import MAX_TOKENS
from ...sampling.params import Sampling
from ..errors import ApiError, bad_value
from ..models import ServedModel
from ..settings import Settings
from .fields import AnswerFields
from .outputs import Choice

# Bytes of a token id as an int in a tuple, of one in an answer with its entry in the look-up of drafts, of
# its step in a grammar, and of a log probability.
TOKEN, INDEXED_TOKEN, GRAMMAR_TOKEN, LOGPROB = 36, 260, 200, 120
DONE = b"data: [DONE]\n\n"
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens. Prompts count once for all choices.

    `cached` tokens of the prompts were known, `reasoning` of the generated ones are thoughts.
    """

    prompt: int
    generated: int
    cached: int
    reasoning: int


class AnswerEncoder(ABC):
    """Each method but `whole` gives events of a stream, ready to be sent."""

    id_prefix: str

    def begin(self, job: "Job") -> Iterator[bytes]:
        """At once."""
        yield from ()

    def started(self, job: "Job", usage: Usage) -> Iterator[bytes]:
        """With the first tokens, when it is known how many were cached."""
        yield from ()

    @abstractmethod
    def chunk(self, job: "Job", delta: dict[str, Any]) -> bytes: ...

    @abstractmethod
    def end(self, job: "Job", usage: Usage) -> Iterator[bytes]: ...

    @abstractmethod
    def fail(self, job: "Job", error: ApiError) -> Iterator[bytes]: ...

    @abstractmethod
    def whole(self, job: "Job", usage: Usage) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Choice c of request r is number r * n + c of `choices`. Without requests, the choices are empty."""

    model: ServedModel
    requests: list[EngineRequest]
    choices: list[Choice]
    encoder: AnswerEncoder
    stream: bool
    prompt_tokens: int
    prompts_only: bool = (
        False  # no token of an answer is asked for, but perhaps log probabilities of the prompts
    )
    id: str
    lines: bool = False  # a stream is lines of JSON, not server-sent events
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def memory(self) -> int:
        """About the bytes that it takes besides keys, values and grammars, for `expected_tokens` of answers.

        These are tokens, look-up and log probabilities.
        """
        prompts = sum(_memory_of_prompt(request) for request in self.requests)
        return prompts + self.expected_tokens * self.token_memory

    @property
    def expected_tokens(self) -> int:
        """Of all answers together. At most 1024 of each: most that may be longer are not."""
        return sum(
            request.n * min(request.sampling.max_tokens or MAX_TOKENS, MAX_TOKENS)
            for request in self.requests
        )

    @property
    def token_memory(self) -> int:
        """Bytes of a token of an answer. The requests of a job differ in their prompts only."""
        return _memory_of_token(self.requests[0]) if self.requests else 0

    @property
    def choices_per_request(self) -> int:
        return len(self.choices) // max(len(self.requests), 1)


def _memory_of_prompt(request: EngineRequest) -> int:
    each = TOKEN + _memory_of_logprobs(request.prompt_logprobs) + request.n * INDEXED_TOKEN
    return len(request.prompt_ids) * each


def _memory_of_token(request: EngineRequest) -> int:
    grammar = 0 if request.grammar is None else GRAMMAR_TOKEN
    return INDEXED_TOKEN + grammar + _memory_of_logprobs(request.logprobs)


def _memory_of_logprobs(most: int | None) -> int:
    return 0 if most is None else (1 + most) * LOGPROB


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(16)}"


def engine_request(
    fields: AnswerFields,
    ids: list[int],
    sampling: Sampling,
    logprobs: int | None,
    grammar: Any,
    job_id: str,
) -> EngineRequest:
    """Its time limit is set when it is submitted."""
    return EngineRequest(
        prompt_ids=tuple(ids),
        sampling=sampling,
        n=fields.n or 1,
        logprobs=logprobs,
        grammar=grammar,
        salt=fields.cache_salt or "",
        id=job_id,
    )


def check_choices(fields: AnswerFields, prompts: int, settings: Settings) -> None:
    """Every choice costs memory and time, so their number has a limit."""
    if (fields.n or 1) > settings.max_choices:
        raise bad_value("n", f"at most {settings.max_choices}")
    if (fields.n or 1) * prompts > settings.max_choices:
        raise bad_value("prompt", f"at most {settings.max_choices} answers, n times the number of prompts")


def check_logprobs(count: int | None, param: str, settings: Settings) -> None:
    if count is not None and count > settings.max_logprobs:
        raise bad_value(param, f"at most {settings.max_logprobs}")


def read_stream(fields: AnswerFields) -> tuple[bool, bool]:
    """Whether to stream, and whether the usage is the last chunk."""
    if fields.stream_options is not None and not fields.stream:
        raise bad_value("stream_options", "null unless stream is true")
    return bool(fields.stream), bool(fields.stream_options and fields.stream_options.include_usage)


class ChoicesEncoder(AnswerEncoder):
    """Of /v1/chat/completions and /v1/completions: `kind` and `chunk_kind` name an answer and an event."""

    def __init__(self, kind: str, chunk_kind: str, include_usage: bool, id_prefix: str):
        self.id_prefix = id_prefix
        self._kind = kind
        self._chunk_kind = chunk_kind
        self._include_usage = include_usage
        self._tail: dict[str, Any] = {"usage": None} if include_usage else {}

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
