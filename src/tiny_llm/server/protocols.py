"""What the server needs of an engine: interfaces, so that tests can put another one in its place."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Protocol

from ..engine import EngineRequest, EngineStatistics, Event, Timings


class HandleProtocol(Protocol):
    """A submitted request; iteration ends after the last choice has finished."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt found in the prefix cache; known after the first event."""
        ...

    def cancel(self) -> None:
        """End the request within one step; may be called repeatedly, from any thread."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]: ...


class ServerTokenizer(Protocol):
    """Text to ids, ids to text, messages to a prompt."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def longest_token(self) -> int:
        """No token has more characters."""
        ...

    @property
    def eos_token_ids(self) -> Collection[int]: ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, token: int) -> bytes: ...

    def apply_chat_template(self, messages: Sequence[Any], **options: Any) -> str: ...


class ModelProtocol(Protocol):
    @property
    def family(self) -> str: ...

    @property
    def weight_bytes(self) -> int:
        """The memory of the weights."""
        ...

    @property
    def tokenizer(self) -> Any:
        """A `ServerTokenizer`."""
        ...


class EngineProtocol(Protocol):
    @property
    def llm(self) -> ModelProtocol: ...
    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and answer together."""
        ...

    def submit(self, request: EngineRequest) -> HandleProtocol:
        """Raises ArgumentError for what can never run, QueueFull, Draining or EngineFailed.

        Called from any thread, with grammars that `find_grammar` finds.
        """
        ...

    def statistics(self) -> EngineStatistics: ...

    def observe(self, callback: Callable[[Timings], None]) -> None: ...

    @property
    def failed(self) -> bool:
        """Whether the engine has stopped after a fault, for good."""
        ...

    def alive(self, max_age: float) -> bool: ...
