"""Our models in `bench peers`: the loop that users get, the model alone, and eight sequences at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx

from benches.contestants.names import BATCH, MLX_LM, OURS, SEQUENCES, STEP
from tiny_llm.benchmark import backends as contestants
from tiny_llm.benchmark.backends import Contestant
from tiny_llm.benchmark.requests import Request
from tiny_llm.cli.build_backend import build_stage
from tiny_llm.cli.loaders import DEFAULT_LOADER, LOADERS
from tiny_llm.cli.mlx_lm_backend import mlx_lm_model
from tiny_llm.generate import PREFILL_STEP
from tiny_llm.generation.tokens import Sequenced, next_logits
from tiny_llm.kv_cache import BatchingKvCache
from tiny_llm.loading import Checkpoint
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.tree import named_arrays, named_parts
from tiny_llm.sampling.select import argmax


def forms_of_ours(checkpoint: Checkpoint, dtype: mx.Dtype, context: int) -> dict[str, Contestant]:
    """The default stage with FlashAttention, as the command line builds it."""
    model = build_stage(checkpoint, LOADERS[DEFAULT_LOADER], True, dtype)
    return {
        OURS: contestants.ours(OURS, model),
        STEP: _contestant(STEP, lambda prompt: _Alone(model, prompt)),
        BATCH: _contestant(BATCH, lambda prompt: _Together(model, prompt, context)),
    }


def mlx_lm(checkpoint: Checkpoint, dtype: mx.Dtype) -> dict[str, Contestant]:
    return {MLX_LM: contestants.mlx_lm(MLX_LM, mlx_lm_model(checkpoint.mlx_model, dtype, silent))}


class _Steps(Protocol):
    """A prompt that has been read, and what one step makes of the next token."""

    last: mx.array  # scores behind the prompt [1, V]

    def step(self, token: int) -> mx.array:
        """The scores behind that token: [1, V], or a row for each sequence."""
        ...


class _Alone:
    """The model and its cache, without a loop around them."""

    def __init__(self, model: Any, prompt: Sequence[int]):
        self._sequence = Sequenced(model)
        self.last = self._sequence.prefill(list(prompt), PREFILL_STEP)

    def step(self, token: int) -> mx.array:
        return self._sequence.read_on(mx.array([token]))


class _Together:
    """Several sequences with one prompt, which grow as the loop of `batch_generate` lets them."""

    def __init__(self, model: Any, prompt: Sequence[int], context: int):
        self._model = model
        self._offset = len(prompt)
        self._caches = [BatchingKvCache(SEQUENCES, context) for _ in range(model.num_hidden_layers)]
        for slot in range(SEQUENCES):
            sequence = Sequenced(model)
            self.last = sequence.prefill(list(prompt), PREFILL_STEP)
            mx.eval(self.last)
            for cache, prefilled in zip(self._caches, sequence.cache, strict=True):
                cache.add_request(prefilled, slot)

    def step(self, token: int) -> mx.array:
        tokens, offsets = mx.array([[token]] * SEQUENCES), [self._offset] * SEQUENCES
        self._offset += 1
        return next_logits(self._model, tokens, offsets, self._caches)


def _contestant(name: str, read: Callable[[Sequence[int]], _Steps]) -> Contestant:
    """Greedy; the scores that the gate looks at come from a step, not from reading a prompt."""

    def start(request: Request) -> Iterator[int]:
        steps = read(request.prompt)
        logits = steps.last
        for left in range(request.output_tokens, 0, -1):
            chosen: Any = argmax(logits).tolist()
            yield chosen[-1]
            if left > 1:
                logits = steps.step(chosen[-1])

    def scores(request: Request) -> mx.array:
        return read(request.prompt[:-1]).step(request.prompt[-1])[-1]

    return Contestant(name, start, scores)


def bytes_of(checkpoint: Checkpoint) -> int:
    """Bytes of the weights that a step reads: all but a token table that does not make the logits, too."""
    tied = checkpoint.mlx_model.args.tie_word_embeddings
    return sum(
        array.nbytes
        for name, part in named_parts(checkpoint.mlx_model)
        if tied or "embed_tokens" not in name
        for array in named_arrays(part, name).values()
    )
