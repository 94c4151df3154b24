"""The sampler of the course: from log probabilities to tokens, by temperature, top-k and top-p."""

from collections.abc import Callable

import mlx.core as mx

from .errors import calling
from .sampling.draw import draw, random_keys
from .sampling.params import Sampling

Sampler = Callable[[mx.array], mx.array]


def make_sampler(
    temp: float,
    top_p: float | None,
    top_k: int | None,
    *,
    min_p: float | None = None,
    seed: int | None = None,
) -> Sampler:
    """Return a function from `logprobs` [..., V], normalised or not, to one token id [...] for each row.

    The arguments are those of `Sampling`. With a `seed`, call n of two equal samplers draws the same token.
    """
    with calling("make_sampler"):
        sampling = Sampling(temp, top_p, top_k, min_p, seed)
    keys = random_keys(seed)

    def sample(logprobs: mx.array) -> mx.array:
        return draw(logprobs, sampling, next(keys))

    return sample


def sampler_of(sampling: Sampling) -> Sampler | None:
    """The sampler for these parameters; None for greedy decoding, which needs no probabilities."""
    if sampling.temp == 0:
        return None
    return make_sampler(
        sampling.temp, sampling.top_p, sampling.top_k, min_p=sampling.min_p, seed=sampling.seed
    )
