"""Who is measured: our model in one form or another, and mlx-lm's."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..generate import PREFILL_STEP
from ..generation.tokens import Chooser, Sequenced, cached_tokens, full_context_tokens, next_logits, token_id
from .requests import Request


@dataclass(frozen=True, slots=True)
class Contestant:
    """`start` gives the tokens of a request, greedy and past any end, `scores` its first logits [V]."""

    name: str
    start: Callable[[Request], Iterator[int]]
    scores: Callable[[Request], mx.array]


def ours(name: str, model: Any) -> Contestant:
    """A model of ours, in the loop that our command line uses."""
    cached = hasattr(model, "create_kv_cache")

    def start(request: Request) -> Iterator[int]:
        prompt = list(request.prompt)
        if cached:
            return cached_tokens(
                model, prompt, Chooser(prompt), request.output_tokens, prefill_step=PREFILL_STEP
            )
        return full_context_tokens(model, prompt, Chooser(prompt), request.output_tokens)

    def scores(request: Request) -> mx.array:
        prompt = list(request.prompt)
        if not cached:
            return next_logits(model, mx.array(prompt)[None])[0]
        with closing(Sequenced(model)) as sequence:
            last = sequence.prefill(prompt, PREFILL_STEP)[0]
            mx.eval(last)
            return last

    return Contestant(name, start, scores)


def mlx_lm(name: str, model: Any) -> Contestant:
    """A model of mlx-lm: it reads a prompt as mlx-lm lets it, all but the last token without any scores.

    Not in mlx-lm's loop, which takes a step more than there are tokens, and the first of them too early: the
    time to the first token would have the second one in it.
    """
    from mlx_lm.models.cache import make_prompt_cache

    def start(request: Request) -> Iterator[int]:
        cache = make_prompt_cache(model)
        prompt = mx.array(request.prompt)
        before, token = prompt[:-1], prompt[-1:]
        for begin in range(0, before.size, PREFILL_STEP):
            model(before[None, begin : begin + PREFILL_STEP], cache=cache)
            mx.eval([layer.state for layer in cache])
        for _ in range(request.output_tokens):
            token = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)
            yield token_id(token)

    def scores(request: Request) -> mx.array:
        last: mx.array = model(mx.array(request.prompt)[None])[0, -1]
        return last

    return Contestant(name, start, scores)
