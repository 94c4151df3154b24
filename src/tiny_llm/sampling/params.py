"""What a caller may ask of the choice of a token. Numbers only: no MLX, no state."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; the defaults take the most probable one.

    Filters apply in this order: `top_k` keeps that many tokens (None, 0: all), `top_p` the shortest prefix of
    these, by falling probability, whose mass reaches it (None, <= 0, >= 1: all), and `min_p` those with at
    least that share of the best one's probability (None, 0: all). Probabilities are those of the full
    vocabulary throughout. Then `temp` flattens (> 1) or sharpens (< 1) what is left; 0 takes the best token.
    A `seed` makes the draws repeat, whatever else draws; without one they follow `mx.random.seed`.
    """

    temp: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not (self.temp >= 0 and math.isfinite(self.temp)):
            raise ValueError(f"sampling: temp: got {self.temp}, expected a finite number of at least 0")
        if self.top_p is not None and math.isnan(self.top_p):
            raise ValueError("sampling: top_p: got nan, expected a number")
        if self.top_k is not None and (not isinstance(self.top_k, int) or self.top_k < 0):
            raise ValueError(f"sampling: top_k: got {self.top_k}, expected a whole number of at least 0")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"sampling: min_p: got {self.min_p}, expected a number from 0 to 1")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"sampling: seed: got {self.seed}, expected an integer of 64 bits")


GREEDY = Sampling()
