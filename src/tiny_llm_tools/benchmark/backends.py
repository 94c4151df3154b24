"""Programs that run a model, with one interface: the models of tiny_llm and those of mlx-lm."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from tiny_llm.engine import EngineRequest
from tiny_llm.engine.batch import engine_for, request_length
from tiny_llm.generation.defaults import prefill_chunk
from tiny_llm.generation.loaded import LoadedModel
from tiny_llm.generation.protocols import has_kv_cache
from tiny_llm.generation.sequence import SequenceState, next_logits
from tiny_llm.generation.tokens import TokenSampler, cached_tokens, full_context_tokens, token_id
from tiny_llm.sampling.params import Sampling

from .requests import BenchRequest


@dataclass(frozen=True, slots=True)
class BenchBackend:
    """`generate` yields the tokens of a request, greedily and past end tokens.

    `logits` returns the logits [V] after the prompt, for comparison between backends; None for one that is
    measured alone.
    """

    name: str
    generate: Callable[[BenchRequest], Iterator[int]]
    logits: Callable[[BenchRequest], mx.array] | None


def tiny_llm_backend(name: str, model: Any) -> BenchBackend:
    """A model of tiny_llm in the loop of the command line."""
    cached = has_kv_cache(model)

    def generate(request: BenchRequest) -> Iterator[int]:
        prompt = list(request.prompt)
        if cached:
            return cached_tokens(
                model, prompt, TokenSampler(prompt), request.output_tokens, prefill_step=prefill_chunk()
            )
        return full_context_tokens(model, prompt, TokenSampler(prompt), request.output_tokens)

    def logits(request: BenchRequest) -> mx.array:
        prompt = list(request.prompt)
        if not cached:
            return next_logits(model, mx.array(prompt)[None])[0]
        with closing(SequenceState(model)) as sequence:
            last = sequence.prefill(prompt, prefill_chunk())[0]
            mx.eval(last)
            return last

    return BenchBackend(name, generate, logits)


def engine_backend(name: str, llm: LoadedModel) -> BenchBackend:
    """A model in an engine, which is the only way to run one that is divided among processes."""

    def generate(request: BenchRequest) -> Iterator[int]:
        sampling = Sampling(max_tokens=request.output_tokens, ignore_eos=True)
        wanted = EngineRequest(prompt_ids=request.prompt, sampling=sampling)
        with engine_for(llm, [request_length(wanted)]) as engine:
            for event in engine.submit(wanted):
                yield from event.token_ids

    return BenchBackend(name, generate, None)


def mlx_lm_backend(name: str, model: Any) -> BenchBackend:
    """A model of mlx-lm. Its prefill computes no logits for all but the last token, as in mlx-lm.

    mlx-lm's own loop is not used: it runs one step more than there are tokens, and it starts the second step
    before it returns the first token, so the time to first token would include both.
    """
    from mlx_lm.models.cache import make_prompt_cache

    def generate(request: BenchRequest) -> Iterator[int]:
        cache = make_prompt_cache(model)
        prompt = mx.array(request.prompt)
        before, token = prompt[:-1], prompt[-1:]
        for begin in range(0, before.size, prefill_chunk()):
            model(before[None, begin : begin + prefill_chunk()], cache=cache)
            mx.eval([layer.state for layer in cache])
        for _ in range(request.output_tokens):
            token = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)
            yield token_id(token)

    def logits(request: BenchRequest) -> mx.array:
        last: mx.array = model(mx.array(request.prompt)[None])[0, -1]
        return last

    return BenchBackend(name, generate, logits)
