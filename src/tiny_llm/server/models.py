"""The models that are served, by name, and what the server needs of their engines.

The interfaces are there so that tests can put another engine in its place.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from ..engine import EngineRequest, EngineStatistics, Event, Timings
from ..errors import LoadError
from .errors import ApiError

PROBE = [{"role": "user", "content": "?"}]
# A token has bytes of normalized text. Normalizing (NFC) makes one character of several: a Latin letter with
# two marks becomes two bytes, so a byte comes of at most one and a half characters.
CHARS_PER_BYTE = 2
PROBE_TOOL = {"type": "function", "function": {"name": "probe", "description": "?", "parameters": {}}}


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
    def encode_raw(self, text: str) -> list[int]: ...
    @property
    def first_text(self) -> str:
        """The token before each text; empty if there is none."""
        ...

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


class ModelCard(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int
    max_model_len: int


class ModelList(Struct):
    object: Literal["list"]
    data: list[ModelCard]


class ServedModel:
    """One model under the name that requests use."""

    def __init__(self, name: str, engine: EngineProtocol):
        self.name = name
        self.engine = engine
        self.created = int(time.time())
        # A text with more characters has more tokens than the context, whatever they are.
        self.most_chars = engine.context * CHARS_PER_BYTE * engine.llm.tokenizer.longest_token
        # Whether the chat template writes tools, and whether it has a switch for thinking. Asked now, because
        # each takes a rendering: the first request must not wait for them.
        plain = self._render()
        self.takes_tools = self._render(tools=[PROBE_TOOL]) not in (plain, None)
        self.takes_thinking = self._render(enable_thinking=True) not in (plain, None)

    @property
    def tokenizer(self) -> ServerTokenizer:
        tokenizer: ServerTokenizer = self.engine.llm.tokenizer
        return tokenizer

    @property
    def card(self) -> ModelCard:
        """As /v1/models shows it. vLLM calls the context length max_model_len."""
        context = self.engine.context
        return ModelCard(self.name, "model", self.created, "tiny-llm", context, context)

    def _render(self, **options: Any) -> str | None:
        """The probe as a prompt; None if the template refuses it."""
        try:
            return self.tokenizer.apply_chat_template(PROBE, **options)
        except LoadError:
            return None


class Models:
    """All of them. A request that names none gets the first."""

    def __init__(self, engines: Mapping[str, EngineProtocol]):
        self._models = {name: ServedModel(name, engine) for name, engine in engines.items()}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def find(self, name: str | None) -> ServedModel:
        """404 for an unknown name, which may be anything and is not repeated."""
        if name is None:
            return next(iter(self))
        if name not in self._models:
            sentence = "model: no such model; GET /v1/models lists the models of this server"
            raise ApiError(404, sentence, param="model", code="model_not_found")
        return self._models[name]
