"""A checked request: what goes to the engine, and the choices that its answers fill."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...engine import EngineRequest
from ...sampling.params import Sampling
from ..errors import ApiError, bad_value
from ..models import ServedModel
from ..settings import Settings
from .fields import AnswerFields
from .outputs import Choice


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens. Prompts count once for all choices.

    `cached` tokens of the prompts were known, `reasoning` of the generated ones are thoughts.
    """

    prompt: int
    generated: int
    cached: int
    reasoning: int


class Form(Protocol):
    """Each method but `whole` gives events of a stream, ready to be sent.

    `begin` is called at once; `started` with the first tokens, when it is known how many were cached.
    """

    id_prefix: str

    def begin(self, job: "Job") -> Iterator[bytes]: ...

    def started(self, job: "Job", usage: Usage) -> Iterator[bytes]: ...

    def chunk(self, job: "Job", delta: dict[str, Any]) -> bytes: ...

    def end(self, job: "Job", usage: Usage) -> Iterator[bytes]: ...

    def fail(self, job: "Job", error: ApiError) -> Iterator[bytes]: ...

    def whole(self, job: "Job", usage: Usage) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Choice c of request r is number r * n + c of `choices`. Without requests, the choices are empty."""

    model: ServedModel
    requests: list[EngineRequest]
    choices: list[Choice]
    form: Form
    stream: bool
    prompt_tokens: int
    prompts_only: bool = False  # no token of an answer is asked for, but perhaps scores of the prompts
    id: str
    lines: bool = False  # a stream is lines of JSON, not server-sent events
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def choices_per_request(self) -> int:
        return len(self.choices) // max(len(self.requests), 1)


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
