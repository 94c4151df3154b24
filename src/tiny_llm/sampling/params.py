"""The parameters of an answer: how each token is chosen, and where the answer ends."""

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any

from ..checks.types import check_int, check_number, check_texts, check_type, kind
from ..errors import ArgumentError, ArgumentTypeError
from .ranges import (
    BIAS,
    COUNT_PENALTY,
    MAX_BIASES,
    MAX_STOP_CHARS,
    MAX_STOPS,
    MAX_TOKENS,
    MIN_P,
    MIN_TOKENS,
    REPETITION_PENALTY,
    SEED,
    TEMP,
    TOKEN_ID,
    TOP_K,
)

# The parameters that are one number. Those of the second table are whole, and None where nothing is given.
NUMBERS = {
    "temp": TEMP,
    "min_p": MIN_P,
    "repetition_penalty": REPETITION_PENALTY,
    "presence_penalty": COUNT_PENALTY,
    "frequency_penalty": COUNT_PENALTY,
}
WHOLE_NUMBERS = {"top_k": TOP_K, "seed": SEED, "max_tokens": MAX_TOKENS}
OPTIONAL = {"top_p", "min_p", "repetition_penalty"}


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
    presence_penalty: subtracted from the logit of each token that is in the answer so far (-2 to 2).
    frequency_penalty: subtracted from it once for each time that the token is there (-2 to 2).
    logit_bias: numbers (-100 to 100) by token id, added to the token's logit; kept as pairs, in order of ids.
    max_tokens: the answer ends after this number of tokens.
    min_tokens: the answer does not end before this number of tokens: tokens that would end it are impossible,
        and stop strings are looked for in the text after these tokens.
    stop: the answer ends before the first of these strings (one str, or several).
    stop_token_ids: the answer ends with each of these tokens, as with the end tokens of the model.
    ignore_eos: the end tokens of the model are tokens like others.

    Order: repetition_penalty, presence_penalty, frequency_penalty, logit_bias, min_tokens, grammar, top_k,
    top_p, min_p, temp. The filters compare probabilities over the full vocabulary.
    """

    temp: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    _: KW_ONLY
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name in ("top_p", *NUMBERS):
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                check_number("Sampling", name, value)
        if self.top_p is not None and math.isnan(self.top_p):
            raise _refused("top_p", "nan", "a number")
        for name, allowed in NUMBERS.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                finite = "finite " if allowed.high == math.inf else ""
                raise _refused(name, value, f"a {finite}number {allowed}")
        for name, allowed in WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool | str | Sequence):
                raise ArgumentTypeError("Sampling", name, kind(value), "a whole number")
            if value is not None and not (isinstance(value, Integral) and int(value) in allowed):
                expected = "an integer of 64 bits" if allowed is SEED else f"a whole number {allowed}"
                raise _refused(name, value, expected)
        limit = self.max_tokens
        check_int("Sampling", "min_tokens", self.min_tokens)
        if self.min_tokens not in MIN_TOKENS or (limit is not None and self.min_tokens > limit):
            expected = "a whole number of at least 0" + (
                "" if limit is None else f", at most max_tokens, {limit}"
            )
            raise _refused("min_tokens", self.min_tokens, expected)
        check_type("Sampling", "ignore_eos", self.ignore_eos, bool, "a bool")
        object.__setattr__(self, "stop", _strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_ids(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))

    def with_limits(self, max_tokens: int | None, stop: str | Sequence[str] | None) -> "Sampling":
        """A copy with this `max_tokens` and these `stop` strings, unless None; [] is no stop string."""
        limit = self.max_tokens if max_tokens is None else max_tokens
        return replace(self, max_tokens=limit, stop=self.stop if stop is None else stop)

    def with_seed(self) -> "Sampling":
        """A copy with a random seed if it has none: every thread starts with the same MLX random state."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))

    def ending_tokens(self, end_tokens: Iterable[int]) -> frozenset[int]:
        """The ids that end an answer of a model with these `end_tokens`."""
        return frozenset(self.stop_token_ids).union(() if self.ignore_eos else end_tokens)

    def check_vocabulary(self, operation: str, size: int) -> None:
        """Refuse ids that a model of `size` tokens does not have: MLX checks no index."""
        for name, ids in (
            ("logit_bias", (token for token, _ in _pairs(self.logit_bias))),
            ("stop_token_ids", self.stop_token_ids),
        ):
            largest = max(ids, default=0)
            if largest >= size:
                raise ArgumentError(operation, name, f"the id {largest}", f"ids from 0 to {size - 1}")

    @property
    def changed_logits(self) -> str | None:
        """The first parameter that changes logits before the filters, in words; None if there is none."""
        changes = {
            "a repetition penalty": self.repetition_penalty is not None,
            "a presence penalty": self.presence_penalty != 0,
            "a frequency penalty": self.frequency_penalty != 0,
            "a logit bias": bool(self.logit_bias),
            "min_tokens": self.min_tokens > 0,
        }
        return next((words for words, is_given in changes.items() if is_given), None)


def _strings(stop: object) -> tuple[str, ...]:
    """One string or several, as a tuple."""
    strings: Any = (stop,) if isinstance(stop, str) else stop
    check_texts("Sampling", "stop", strings)
    if not all(strings):
        raise _refused("stop", repr(stop), "strings of at least one character")
    longest = max(map(len, strings), default=0)
    if len(strings) > MAX_STOPS or longest > MAX_STOP_CHARS:
        got = f"{len(strings)} strings of up to {longest} characters"
        raise _refused("stop", got, f"at most {MAX_STOPS} strings of {MAX_STOP_CHARS} characters")
    return tuple(strings)


def _stop_ids(given: object) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise ArgumentTypeError("Sampling", "stop_token_ids", kind(given), "a list of ints")
    if len(given) > MAX_STOPS:
        raise _refused("stop_token_ids", f"{len(given)} ids", f"at most {MAX_STOPS}")
    return tuple(_token_id(f"stop_token_ids[{index}]", token) for index, token in enumerate(given))


def _biases(given: object) -> tuple[tuple[int, float], ...]:
    """Pairs of id and bias in order of ids; a mapping has each id once."""
    if isinstance(given, str | bytes) or not isinstance(given, Mapping | Sequence):
        raise ArgumentTypeError("Sampling", "logit_bias", kind(given), "a dict from token ids to numbers")
    if len(given) > MAX_BIASES:
        raise _refused("logit_bias", f"{len(given)} entries", f"at most {MAX_BIASES}")
    biases = {}
    for token, bias in _pairs(given):
        check_number("Sampling", f"logit_bias[{token}]", bias)
        if bias not in BIAS:
            raise _refused(f"logit_bias[{token}]", bias, f"a number {BIAS}")
        biases[_token_id("logit_bias", token)] = float(bias)
    return tuple(sorted(biases.items()))


def _pairs(given: Any) -> list[tuple[int, float]]:
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise ArgumentTypeError(
                "Sampling", "logit_bias", f"{kind(pair)} inside", "a dict from token ids to numbers"
            )
    return pairs


def _token_id(argument: str, token: Any) -> int:
    check_int("Sampling", argument, token)
    if token not in TOKEN_ID:
        raise _refused(argument, f"the id {token}", "an id of the vocabulary, at least 0")
    return int(token)


def _refused(name: str, got: object, expected: str) -> ArgumentError:
    return ArgumentError("Sampling", name, got, expected)


GREEDY = Sampling()
