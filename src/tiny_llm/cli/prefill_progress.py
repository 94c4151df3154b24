"""Progress of prefill: how many tokens of the prompt are processed, or that MLX compiles GPU kernels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..generation.sequence import next_logits
from ..loading.progress import Progress
from ..runtime.kernel_cache import kernel_cache, must_compile

READING = "reading the prompt"
COMPILING = "compiling GPU kernels, at their first use"


class PrefillReporter:
    """A model wrapped to report, at each call, how many of the first `total` tokens were processed before."""

    def __init__(self, model: Any, progress: Progress):
        self._model = model
        self._progress = prefill_progress(progress, kernel_cache())
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
            self._progress(offset, self.total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def prefill_progress(progress: Progress, cache: Path | None) -> Callable[[int, int], None]:
    """A function that reports how many tokens of how many are processed.

    With an empty cache of kernels it reports that they are compiled: that takes most of the time.
    """
    if must_compile(cache):
        return lambda done, total: progress(COMPILING, 0, None)
    return lambda done, total: progress(READING, done, total)
