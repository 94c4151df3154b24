"""tiny_llm and mlx-lm in `bench peers`: tiny_llm as its loop, as the model alone, and as a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx

from benches.names import BATCH, MLX_LM, SEQUENCES, STEP, TINY_LLM
from tiny_llm.cli.build_backend import build_stage
from tiny_llm.cli.loaders import DEFAULT_LOADER, LOADERS
from tiny_llm.cli.mlx_lm_backend import mlx_lm_model
from tiny_llm.generation.defaults import prefill_chunk
from tiny_llm.generation.sequence import SequenceState, next_logits
from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.loading import Checkpoint
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.tree import named_arrays, named_parts
from tiny_llm.sampling.select import argmax
from tiny_llm_tools.benchmark.backends import BenchBackend, mlx_lm_backend, tiny_llm_backend
from tiny_llm_tools.benchmark.requests import BenchRequest


def tiny_llm(checkpoint: Checkpoint, dtype: mx.Dtype, context: int) -> dict[str, BenchBackend]:
    """The model of the command line with FlashAttention, in the loop of the course."""
    model = build_stage(checkpoint, LOADERS[DEFAULT_LOADER], True, dtype)
    return {
        TINY_LLM: tiny_llm_backend(TINY_LLM, model),
        STEP: _stepped(STEP, lambda prompt: _ModelAlone(model, prompt)),
        BATCH: _stepped(BATCH, lambda prompt: _Batch(model, prompt, context)),
    }


def mlx_lm(checkpoint: Checkpoint, dtype: mx.Dtype) -> dict[str, BenchBackend]:
    return {MLX_LM: mlx_lm_backend(MLX_LM, mlx_lm_model(checkpoint.mlx_model, dtype, silent))}


class _Steps(Protocol):
    """A prompt after its prefill, and the decode steps that follow."""

    last: mx.array  # logits after the prompt [1, V]

    def step(self, token: int) -> mx.array:
        """The logits after that token: [1, V], or a row for each sequence."""
        ...


class _ModelAlone:
    """The model and its cache, without the loop that selects tokens."""

    def __init__(self, model: Any, prompt: Sequence[int]):
        self._sequence = SequenceState(model)
        self.last = self._sequence.prefill(list(prompt), prefill_chunk())

    def step(self, token: int) -> mx.array:
        return self._sequence.step(mx.array([token]))


class _Batch:
    """Several sequences with the same prompt, decoded together as by `batch_generate`."""

    def __init__(self, model: Any, prompt: Sequence[int], context: int):
        self._model = model
        self._offset = len(prompt)
        self._caches = [BatchingKvCache(SEQUENCES, context) for _ in range(model.num_hidden_layers)]
        for slot in range(SEQUENCES):
            sequence = SequenceState(model)
            self.last = sequence.prefill(list(prompt), prefill_chunk())
            mx.eval(self.last)
            for cache, prefilled in zip(self._caches, sequence.cache, strict=True):
                cache.add_request(prefilled, slot)

    def step(self, token: int) -> mx.array:
        tokens, offsets = mx.array([[token]] * SEQUENCES), [self._offset] * SEQUENCES
        self._offset += 1
        return next_logits(self._model, tokens, offsets, self._caches)


def _stepped(name: str, prefill: Callable[[Sequence[int]], _Steps]) -> BenchBackend:
    """Greedy. The logits that are compared are those of a decode step, not of a prefill."""

    def generate(request: BenchRequest) -> Iterator[int]:
        steps = prefill(request.prompt)
        logits = steps.last
        for left in range(request.output_tokens, 0, -1):
            chosen: Any = argmax(logits).tolist()
            yield chosen[-1]
            if left > 1:
                logits = steps.step(chosen[-1])

    def last_logits(request: BenchRequest) -> mx.array:
        return prefill(request.prompt[:-1]).step(request.prompt[-1])[-1]

    return BenchBackend(name, generate, last_logits)


def bytes_of(checkpoint: Checkpoint) -> int:
    """Bytes of the weights that a step reads: all but a token embedding that is not the output matrix too."""
    tied = checkpoint.mlx_model.args.tie_word_embeddings
    return sum(
        array.nbytes
        for name, part in named_parts(checkpoint.mlx_model)
        if tied or "embed_tokens" not in name
        for array in named_arrays(part, name).values()
    )
