"""The ranges of the parameters of an answer, for `Sampling`, requests to the server, and options."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`; `low` itself is not one of them if they are `above` it."""

    low: float
    high: float = math.inf
    above: bool = False

    def __contains__(self, number: float) -> bool:
        is_high_enough = number > self.low if self.above else number >= self.low
        return is_high_enough and number <= self.high and number != math.inf

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"above {self.low}" if self.above else f"of at least {self.low}"
        return f"above {self.low}, at most {self.high}" if self.above else f"from {self.low} to {self.high}"


TEMP = Range(0)
TOP_P = Range(0, 1, above=True)
TOP_K = Range(0)  # 0: all
MIN_P = Range(0, 1)
SEED = Range(-(2**63), 2**63 - 1)
REPETITION_PENALTY = Range(0, above=True)
COUNT_PENALTY = Range(-2, 2)  # presence and frequency
BIAS = Range(-100, 100)
TOKEN_ID = Range(0, 2**31 - 1)  # the vocabulary of a model is checked when the model is known
MAX_TOKENS = Range(1)
MIN_TOKENS = Range(0)
MAX_BIASES = 1024  # entries of logit_bias
MAX_STOPS = 64  # stop strings, and stop_token_ids
MAX_STOP_CHARS = 1024
