"""A checked request: what goes to the engine, the choices that its answers fill, and what is around them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ...engine import EngineRequest, Event
from ...generation.defaults import MAX_TOKENS
from ..errors import ApiError
from ..models import ServedModel, ServerTokenizer
from .pieces import AnswerReader, Blocks, Step

# Bytes of a token id as an int in a tuple, of one in an answer with its entry in the look-up of drafts, of
# its step in a grammar, and of a log probability.
TOKEN, INDEXED_TOKEN, GRAMMAR_TOKEN, LOGPROB = 36, 260, 200, 120
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


class Choice(Protocol):
    """One answer. `deltas` gives what an event adds to it, `whole` all of it, in the words of an interface.

    finish_reason: None until the answer has ended, perhaps before its last event.
    """

    finish_reason: str | None

    @property
    def reasoning_tokens(self) -> int: ...

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]: ...

    def whole(self) -> dict[str, Any]: ...


class ReadChoice:
    """A choice that is made of the pieces of a text."""

    def __init__(self, tokenizer: ServerTokenizer, reader: AnswerReader):
        self._tokenizer = tokenizer
        self._reader = reader
        self._blocks = Blocks()
        self.finish_reason: str | None = None

    @property
    def reasoning_tokens(self) -> int:
        return self._reader.reasoning_tokens

    def _steps(self, event: Event) -> Iterator[Step]:
        """What an event changes of the blocks; they are closed with the answer."""
        pieces, self.finish_reason = self._reader.read(event)
        for piece in pieces:
            yield from self._blocks.add(piece)
        if self.finish_reason is not None:
            yield from self._blocks.close()


class AnswerEncoder(ABC):
    """How an interface writes an answer. Each method for a stream gives events that are ready to be sent."""

    id_prefix: str
    lines = False  # a stream is lines of JSON, not server-sent events
    answered_at: int | None = None  # when the engine began to answer, by the clock that counts nanoseconds

    @abstractmethod
    def new_choice(self, index: int, tokenizer: ServerTokenizer, reader: AnswerReader) -> Choice:
        """An answer of a chat."""

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


def server_sent(record: object, kind: str | None = None) -> bytes:
    """A server-sent event, of this type if there is one."""
    name = b"" if kind is None else b"event: " + kind.encode() + b"\n"
    return name + b"data: " + encode(record) + b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Choice c of request r is number r * n + c of `choices`. Without requests, the choices are empty."""

    model: ServedModel
    requests: list[EngineRequest]
    choices: list[Choice]
    encoder: AnswerEncoder
    stream: bool
    prompt_tokens: int
    id: str
    # No token of an answer is asked for, but perhaps log probabilities of the prompts.
    prompts_only: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def memory(self) -> int:
        """About the bytes of tokens, look-up and log probabilities, for `expected_tokens` of answers.

        Keys, values and grammars are not among them.
        """
        prompts = sum(
            len(each.prompt_ids) * (TOKEN + _memory_of(each.prompt_logprobs) + each.n * INDEXED_TOKEN)
            for each in self.requests
        )
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
        if not self.requests:
            return 0
        request = self.requests[0]
        grammar = 0 if request.grammar is None else GRAMMAR_TOKEN
        return INDEXED_TOKEN + grammar + _memory_of(request.logprobs)

    @property
    def choices_per_request(self) -> int:
        return len(self.choices) // max(len(self.requests), 1)


def _memory_of(logprobs: int | None) -> int:
    return 0 if logprobs is None else (1 + logprobs) * LOGPROB
