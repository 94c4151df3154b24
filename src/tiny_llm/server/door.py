"""What the server needs of an engine: interfaces only, so that any engine can stand behind it."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from ..engine.events import EventReason
from ..engine.request import EngineRequest
from ..generation.result import TokenLogprobs


class Event(Protocol):
    """New tokens of one choice. `text` is the part that is certain by now; it may be empty."""

    @property
    def choice(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[TokenLogprobs] | None: ...
    @property
    def finish_reason(self) -> EventReason | None: ...
    @property
    def error(self) -> Exception | None: ...


class Handle(Protocol):
    """A submitted request; iteration ends after the last choice has finished."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt found in the prefix cache; known after the first event."""
        ...

    def cancel(self) -> None:
        """End the request within one step; may be called repeatedly, from any thread."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]: ...


class Tokenizer(Protocol):
    """Text to ids, ids to text, messages to a prompt."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def eos_token_ids(self) -> Collection[int]: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, token: int) -> bytes: ...

    def apply_chat_template(self, messages: Sequence[Any], **options: Any) -> str: ...


class Model(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Tokenizer: ...


class Grammars(Protocol):
    """Makes grammars: values for `EngineRequest.grammar`. What cannot be one is an ArgumentError."""

    def json_object(self) -> Any: ...

    def json_schema(self, schema: Mapping[str, Any] | str) -> Any: ...

    def regex(self, pattern: str) -> Any: ...

    def lark(self, text: str) -> Any: ...


class Statistics(Protocol):
    """Counters since the start, and the present state. `step_tokens` has the sizes of the latest steps."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def pages_total(self) -> int: ...
    @property
    def pages_used(self) -> int: ...
    @property
    def prefix_queries(self) -> int: ...
    @property
    def prefix_hits(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generation_tokens(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def step_tokens(self) -> Sequence[int]: ...


class Timings(Protocol):
    """Of a finished request."""

    @property
    def queue_seconds(self) -> float: ...


class Engine(Protocol):
    @property
    def llm(self) -> Model: ...
    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and answer together."""
        ...

    def submit(self, request: EngineRequest) -> Handle:
        """Raises ArgumentError for what can never run, QueueFull, Draining or EngineFailed.

        Called from any thread; it may take seconds, to compile a grammar.
        """
        ...

    def statistics(self) -> Statistics: ...

    def observe(self, callback: Callable[[Any], None]) -> None:
        """Call `callback` with the `Timings` of each finished request, from the engine's thread."""
        ...

    def alive(self, max_age: float) -> bool:
        """Whether a step, or a rest without work, is not older than `max_age` seconds."""
        ...
