"""Who is measured: our model in one form or another, and mlx-lm's."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..engine.tokens import Chooser, Sequenced, cached_tokens, full_context_tokens, next_logits
from ..generate import PREFILL_STEP
from .workload import Request


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
    """A model of mlx-lm, in mlx-lm's loop."""
    from mlx_lm.generate import generate_step

    def start(request: Request) -> Iterator[int]:
        steps = generate_step(
            mx.array(request.prompt), model, max_tokens=request.output_tokens, prefill_step_size=PREFILL_STEP
        )
        return (int(token) for token, _ in steps)

    def scores(request: Request) -> mx.array:
        last: mx.array = model(mx.array(request.prompt)[None])[0, -1]
        return last

    return Contestant(name, start, scores)
