"""A library that keeps one sequence with its KV cache, as a backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tiny_llm_tools.benchmark.backends import BenchBackend
from tiny_llm_tools.benchmark.requests import BenchRequest


class LibrarySequence(Protocol):
    """The tokens so far and their KV cache, in another library."""

    def clear(self) -> None:
        """Drop all tokens."""

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens; the logits [V] after the last of them."""


def greedy_backend(name: str, sequence: LibrarySequence) -> BenchBackend:
    """The next token is the one with the highest logit, chosen in NumPy."""

    def generate(request: BenchRequest) -> Iterator[int]:
        sequence.clear()
        tokens: Sequence[int] = request.prompt
        for _ in range(request.output_tokens):
            token = int(sequence.logits(tokens).argmax())
            yield token
            tokens = [token]

    def logits(request: BenchRequest) -> mx.array:
        sequence.clear()
        return mx.array(sequence.logits(request.prompt))

    return BenchBackend(name, generate, logits)
