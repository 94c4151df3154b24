"""Backends: one interface for generating text, implemented by our models and by mlx-lm."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..generate import stream_generate
from ..generation.defaults import MAX_TOKENS
from ..generation.generation import Generation
from ..generation.messages import render_prompt
from ..generation.prompt_cache import PromptCache
from ..generation.protocols import has_kv_cache
from ..generation.text import shortest_context
from ..loading.errors import NoChatTemplate
from ..loading.progress import Progress
from ..sampling.grammar import Grammar
from ..sampling.params import Sampling
from .exit_codes import Refusal
from .prefill_progress import PrefillReporter

Messages = Sequence[dict[str, str]]


class Backend(ABC):
    """A loaded model with its tokenizer.

    `description` has the fields of the JSON output; `context` is the maximum number of tokens of prompt and
    answer together.
    """

    def __init__(self, tokenizer: Any, description: dict[str, Any], context: int):
        self.tokenizer = tokenizer
        self.description = description
        self.context = context

    @abstractmethod
    def generate(
        self,
        prompt: str,
        sampling: Sampling,
        progress: Progress,
        prompt_cache: PromptCache | None = None,
        grammar: Grammar | None = None,
    ) -> Generation:
        """Start an answer to a rendered prompt; ArgumentError for one that does not fit."""

    def make_prompt_cache(self) -> PromptCache | None:
        """A KV cache to pass from turn to turn; None if every prompt is processed from its start."""
        return None

    def count_tokens(self, prompt: str) -> int:
        return len(self.tokenizer.encode(prompt, add_special_tokens=False))

    def render(self, messages: Messages, enable_thinking: bool) -> str:
        """The messages as one prompt, by the chat template of the model."""
        model = self.description["model"]
        try:
            return render_prompt("", model, self.tokenizer, messages, enable_thinking)
        except NoChatTemplate as error:
            raise Refusal(
                f"--model: {model} has no chat template, so it cannot answer messages; "
                "generate, batch and visualize can continue a text with --raw"
            ) from error
        except ArgumentError as error:
            if error.argument != "enable_thinking":
                raise
            raise Refusal(f"--enable-thinking: {error.reason}") from error


class TinyLlmBackend(Backend):
    """One of our models, with or without a draft model for speculative decoding."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        description: dict[str, Any],
        draft: tuple[Any, Any] | None = None,  # model and tokenizer
    ):
        models = [model] if draft is None else [model, draft[0]]
        super().__init__(tokenizer, description, shortest_context(models) or sys.maxsize)
        self.model = model
        self._draft = draft

    def make_prompt_cache(self) -> PromptCache | None:
        can_cache = self._draft is None and has_kv_cache(self.model)
        return PromptCache() if can_cache else None

    def generate(
        self,
        prompt: str,
        sampling: Sampling,
        progress: Progress,
        prompt_cache: PromptCache | None = None,
        grammar: Grammar | None = None,
    ) -> Generation:
        model = PrefillReporter(self.model, progress)
        generation = stream_generate(
            model,
            self.tokenizer,
            prompt,
            sampling=sampling.with_limits(sampling.max_tokens or MAX_TOKENS, None),
            draft_model=self._draft and self._draft[0],
            draft_tokenizer=self._draft and self._draft[1],
            prompt_cache=prompt_cache,
            response_format=grammar,
        )
        model.total = generation.statistics.prompt_tokens
        return generation
