"""Arrays of MLX are lazy: what is measured must be evaluated inside the measurement."""

from __future__ import annotations

from typing import TypeVar

import mlx.core as mx

Outputs = TypeVar("Outputs")


class Watching:
    """A measurement that evaluates the outputs given to `watch` before it ends."""

    def __init__(self) -> None:
        self._watched: list[object] = []

    def watch(self, outputs: Outputs) -> Outputs:
        """Evaluate these arrays, in any nesting of lists and dictionaries, before the measurement ends."""
        self._watched.append(outputs)
        return outputs

    @property
    def watched(self) -> tuple[object, ...]:
        """What `watch` was given and was not evaluated yet."""
        return tuple(self._watched)

    def _evaluate(self) -> None:
        mx.eval(self._watched)
        self._watched.clear()
        mx.synchronize()
