"""tiny_llm and mlx-lm on a GPU: one random model for both, on the same arrays, in the loop of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import mlx.core as mx

from tiny_llm import LLM
from tiny_llm.generation.batching import DenseBatch
from tiny_llm.generation.defaults import prefill_chunk
from tiny_llm.generation.sequence import SequenceState
from tiny_llm.generation.tokens import TokenSampler, cached_tokens
from tiny_llm.loading.weights.random_model import random_config
from tiny_llm.models import dispatch_model
from tiny_llm.sampling.select import argmax

CONTEXT = 32768


@dataclass(frozen=True, slots=True)
class Models:
    """The model of each contestant."""

    ours: Any
    theirs: Any


def random_models(shortcut: str, bits: int | None) -> Models:
    """Random weights of the shape of a real model, in bfloat16, or packed with `bits` bits."""
    from mlx.nn.layers.quantized import quantize

    config = random_config(shortcut)
    module: Any = import_module(f"mlx_lm.models.{config.model_type}")
    theirs = module.Model(module.ModelArgs.from_dict(vars(config)))
    theirs.set_dtype(mx.bfloat16)
    if bits is not None:
        quantize(theirs, 64, bits)
    mx.eval(theirs.parameters())
    ours = dispatch_model(shortcut, theirs, 2, enable_flash_attn=True, dtype=mx.bfloat16)
    return Models(ours, theirs)


def embedded_model() -> Any:
    """The model that is part of tiny_llm."""
    return LLM("tiny").model


def our_tokens(model: Any, prompt: Sequence[int], count: int) -> Iterator[int]:
    """The loop of the course, on dense caches, as an engine has on a GPU."""
    sampler = TokenSampler(list(prompt))
    yield from cached_tokens(model, list(prompt), sampler, count, prefill_step=prefill_chunk())


def their_tokens(model: Any, prompt: Sequence[int], count: int) -> Iterator[int]:
    """mlx-lm's own loop."""
    from mlx_lm.generate import generate_step

    for token, _ in generate_step(mx.array(prompt), model, max_tokens=count):
        yield int(token)


class CountedRequest:
    """A request of a batch whose tokens become no text, as in mlx-lm's batch."""

    def __init__(self, model: Any, prompt: Sequence[int], count: int):
        sequence = SequenceState(model)
        token: Any = argmax(sequence.prefill(list(prompt), prefill_chunk())).item()
        self.sampler = TokenSampler(list(prompt))
        self.next_token: int = token
        self.kv_cache = sequence.cache
        self.offset = len(prompt)
        self._left = count - 1

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def decode_done(self, token: int) -> None:
        self.next_token = token
        self.offset += 1
        self._left -= 1


def our_batch(model: Any, prompts: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    """The decode steps of `run_batch`: the number of tokens of each."""
    batch = DenseBatch(model, len(prompts), CONTEXT, None)
    for prompt in prompts:
        batch.admit(CountedRequest(model, prompt, count))  # type: ignore[arg-type]
    yield len(prompts)
    while batch.active:
        tokens = len(batch.active)
        batch.step()
        yield tokens


def their_batch(model: Any, prompts: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    """The decode steps of mlx-lm's batch."""
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(
        model, max_tokens=count, completion_batch_size=len(prompts), prefill_batch_size=len(prompts)
    )
    generator.insert([list(prompt) for prompt in prompts], [count] * len(prompts))
    while responses := generator.next_generated():
        yield len(responses)
    generator.close()
