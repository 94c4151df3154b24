"""What a step computes: the rows of its plan, and their next tokens."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from ..generation.loaded import LoadedModel
from ..runtime.device import on_device
from ..sampling.rows import Drawn
from ..scheduler import Plan, RequestState
from .answers import Answers
from .draft_model import DraftModel
from .prompt_scores import take_prompt_scores
from .runner import Runner
from .sampling import has_grammar, sample


class Steps:
    """Runs the model of an engine, and the model that drafts for it. All arrays belong to one thread.

    The device is taken for one step at a time, so that an engine on another device has its turn.
    """

    def __init__(self, llm: LoadedModel, runner: Runner, draft_model: DraftModel | None = None):
        self._llm = llm
        self.runner = runner
        self._draft_model = draft_model

    def compute(
        self, plan: Plan, answers: Answers, lock: AbstractContextManager[Any]
    ) -> dict[RequestState, list[Drawn]]:
        """The next tokens of each answer. `lock` guards `answers`."""
        with on_device(self._llm.device):
            with lock:
                drafting = answers.drafting(plan)
            draft_probs = self._draft_model.fill(plan, drafting) if self._draft_model else {}
            logits = self.runner.logits(plan)
            with lock:
                samplers = answers.samplers(plan)
                scores = answers.prompt_scores(plan)
            logits = take_prompt_scores(logits, plan, scores)
            if has_grammar(samplers):  # masks are computed beside the kernels
                mx.async_eval(logits)  # type: ignore[no-untyped-call]
            return sample(logits, plan, samplers, draft_probs)

    def forget(self) -> None:
        """Start with new pages: after a step that failed, arrays may be unusable."""
        with on_device(self._llm.device):
            self.runner.forget()
            if self._draft_model is not None:
                self._draft_model.forget()
