"""Progress of prefill: how many tokens of the prompt a model has processed."""

from typing import Any

import mlx.core as mx

from ..generation.tokens import next_logits
from ..loading.progress import Progress

READING = "reading the prompt"


class PrefillReporter:
    """A model wrapped to report, at each call, how many of the first `total` tokens were processed before."""

    def __init__(self, model: Any, progress: Progress):
        self._model = model
        self._progress = progress
        self.total = 0
        self._newest = -1  # last report; a model without a cache starts at 0 for every token

    def __call__(self, inputs: mx.array, *where: Any) -> mx.array:
        self._report(*where)
        logits: mx.array = self._model(inputs, *where)
        return logits

    def next_logits(self, inputs: mx.array, *where: Any) -> mx.array:
        self._report(*where)
        return next_logits(self._model, inputs, *where)

    def _report(self, offset: int = 0, *cache: Any) -> None:
        if self._newest < offset < self.total:
            self._newest = offset
            self._progress(READING, offset, self.total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
