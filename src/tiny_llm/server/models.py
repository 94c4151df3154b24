"""The models that are served, by name, and what their chat templates understand."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..loading.errors import LoadError
from .errors import ApiError
from .protocols import EngineProtocol, ServerTokenizer

PROBE = [{"role": "user", "content": "?"}]
# A token has bytes of normalized text. Normalizing (NFC) makes one character of several: a Latin letter with
# two marks becomes two bytes, so a byte comes of at most one and a half characters.
CHARS_PER_BYTE = 2
PROBE_TOOL = {"type": "function", "function": {"name": "probe", "description": "?", "parameters": {}}}


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
    def card(self) -> dict[str, Any]:
        """As /v1/models shows it. vLLM calls the context length max_model_len."""
        context = self.engine.context
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "tiny-llm",
            "context_length": context,
            "max_model_len": context,
        }

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
