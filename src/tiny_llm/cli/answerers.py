"""Who answers a prompt: our models, or the model and the loop of mlx-lm, behind one interface."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.generation import Generation
from ..generate import stream_generate
from ..loading.progress import Progress
from ..sampling.params import Sampling
from ..sampling.penalty import LogitsProcessor, make_repetition_penalty
from .endings import Refusal
from .prefill import Watched

Messages = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags ask of an answer."""

    sampling: Sampling
    max_tokens: int
    stop: tuple[str, ...] = ()
    repetition_penalty: float | None = None

    @property
    def processors(self) -> list[LogitsProcessor]:
        penalty = self.repetition_penalty
        return [] if penalty is None else [make_repetition_penalty(penalty)]


class Answerer(ABC):
    """A loaded model with its tokenizer; `description` says in JSON's terms what it is."""

    def __init__(self, tokenizer: Any, description: dict[str, Any]):
        self.tokenizer = tokenizer
        self.description = description

    @abstractmethod
    def answer(self, prompt: str, wishes: Wishes, progress: Progress) -> Generation:
        """Start to answer a prompt that is written as the model reads it; ValueError if that cannot work."""

    def write_prompt(self, messages: Messages, enable_thinking: bool) -> str:
        """A conversation as the model reads it."""
        plain: str = self.tokenizer.apply_chat_template(messages)
        if not enable_thinking:
            return plain
        thinking: str = self.tokenizer.apply_chat_template(messages, enable_thinking=True)
        if thinking == plain:
            raise Refusal(
                f"--enable-thinking: the chat template of {self.description['model']} has no such switch"
            )
        return thinking


class Ours(Answerer):
    """One of our models, with or without a smaller one that guesses ahead."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        description: dict[str, Any],
        draft: tuple[Any, Any] | None = None,  # a model and its tokenizer
    ):
        super().__init__(tokenizer, description)
        self.model = model
        self._draft = draft

    def answer(self, prompt: str, wishes: Wishes, progress: Progress) -> Generation:
        model = Watched(self.model, progress)
        generation = stream_generate(
            model,
            self.tokenizer,
            prompt,
            sampling=wishes.sampling,
            processors=wishes.processors,
            max_tokens=wishes.max_tokens,
            stop=wishes.stop,
            draft_model=self._draft and self._draft[0],
            draft_tokenizer=self._draft and self._draft[1],
        )
        model.total = generation.statistics.prompt_tokens
        return generation
