"""The parameters of an answer: how each token is chosen, and where the answer ends."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any

from ..checks.types import check_number, check_texts, kind
from ..errors import ArgumentError, ArgumentTypeError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of an answer are chosen, and where it ends; the defaults are greedy decoding.

    temp: temperature; flattens (> 1) or sharpens (< 1) the distribution. 0 takes the most probable token.
    top_p: keep the shortest prefix, by descending probability, whose mass reaches p (None, <= 0, >= 1: all).
    top_k: keep the k most probable tokens (None, 0: all).
    min_p: keep tokens with at least this fraction of the best token's probability (None, 0: all).
    seed: makes the draws the same in every run. Without one they follow `mx.random.seed`, and in `LLM` they
        differ from call to call.
    repetition_penalty: divides the positive logits of the tokens in prompt and answer, and multiplies the
        negative ones (None, 1: no change).
    max_tokens: the answer ends after this number of tokens.
    stop: the answer ends before the first of these strings (one str, or several).

    Order: repetition_penalty, top_k, top_p, min_p, temp. Probabilities are those of the full vocabulary.
    """

    temp: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    _: KW_ONLY
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("temp", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            if value is not None or name == "temp":
                check_number("Sampling", name, value)
        if not (self.temp >= 0 and math.isfinite(self.temp)):
            raise _refused("temp", self.temp, "a finite number of at least 0")
        if self.top_p is not None and math.isnan(self.top_p):
            raise _refused("top_p", "nan", "a number")
        for name in ("top_k", "seed", "max_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool | str | Sequence):
                raise ArgumentTypeError("Sampling", name, kind(value), "a whole number")
        if self.top_k is not None and (not isinstance(self.top_k, Integral) or self.top_k < 0):
            raise _refused("top_k", self.top_k, "a whole number of at least 0")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise _refused("min_p", self.min_p, "a number from 0 to 1")
        if self.seed is not None and not (isinstance(self.seed, Integral) and -(2**63) <= self.seed < 2**63):
            raise _refused("seed", self.seed, "an integer of 64 bits")
        penalty = self.repetition_penalty
        if penalty is not None and not (penalty > 0 and math.isfinite(penalty)):
            raise _refused("repetition_penalty", penalty, "a finite number above 0")
        limit = self.max_tokens
        if limit is not None and not (isinstance(limit, Integral) and limit >= 1):
            raise _refused("max_tokens", limit, "a whole number of at least 1")
        object.__setattr__(self, "stop", _strings(self.stop))

    def with_limits(self, max_tokens: int | None, stop: str | Sequence[str] | None) -> "Sampling":
        """A copy with this `max_tokens` and these `stop` strings, unless None; [] is no stop string."""
        limit = self.max_tokens if max_tokens is None else max_tokens
        return replace(self, max_tokens=limit, stop=self.stop if stop is None else stop)

    def with_seed(self) -> "Sampling":
        """A copy with a random seed if it has none: every thread starts with the same MLX random state."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))


def _strings(stop: object) -> tuple[str, ...]:
    """One string or several, as a tuple."""
    strings: Any = (stop,) if isinstance(stop, str) else stop
    check_texts("Sampling", "stop", strings)
    if not all(strings):
        raise _refused("stop", repr(stop), "strings of at least one character")
    return tuple(strings)


def _refused(name: str, got: object, expected: str) -> ArgumentError:
    return ArgumentError("Sampling", name, got, expected)


GREEDY = Sampling()
