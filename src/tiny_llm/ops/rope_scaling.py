"""RoPE for texts longer than those that a model was first trained on: each kind changes the frequencies."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError

ORIGINAL = "original_max_position_embeddings"
MAX_POSITIONS = 2**24
MAX_FACTOR = 2**10
OTHERS = ("rope_type", "type", "rope_theta")  # fields that each kind may have


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng and others, 2023): a context `factor` times as long as the `original` one of the training.

    A pair of elements that makes more than `beta_fast` turns in the original context keeps its frequency; one
    that makes fewer than `beta_slow` gets it divided by `factor`, so that it turns no further than in the
    training. Between them the frequencies are mixed. Cosine and sine are multiplied by `attention_factor`.
    """

    factor: float
    original: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @property
    def context(self) -> int:
        """The number of positions."""
        return round(self.factor * self.original)

    def frequencies(self, dims: int, base: float) -> list[float]:
        """The angle between neighbouring positions of each pair, in radians."""
        half = dims // 2

        def pair(turns: float) -> float:
            """The pair that makes so many turns in the original context."""
            return half * math.log(self.original / (turns * 2 * math.pi)) / math.log(base)

        first = max(math.floor(pair(self.beta_fast)), 0)
        last = min(math.ceil(pair(self.beta_slow)), dims - 1)
        frequencies = []
        for i in range(half):
            slowed = min(max((i - first) / (last - first or 0.001), 0.0), 1.0)
            frequencies.append(base ** (-i / half) * (1 - slowed + slowed / self.factor))
        return frequencies


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's: as YaRN, but the mix depends on the turns themselves, not on the number of the pair.

    A pair that makes more than `high` turns in the `original` context keeps its frequency, one that makes
    fewer than `low` gets it divided by `factor`. `context` is that of the model after its training.
    """

    factor: float
    original: int
    context: int
    low: float
    high: float
    attention_factor: float = 1.0

    def frequencies(self, dims: int, base: float) -> list[float]:
        """The angle between neighbouring positions of each pair, in radians."""
        half = dims // 2
        frequencies = []
        for i in range(half):
            frequency = base ** (-i / half)
            turns = self.original * frequency / (2 * math.pi)
            kept = min(max((turns - self.low) / (self.high - self.low), 0.0), 1.0)
            frequencies.append(frequency * (kept + (1 - kept) / self.factor))
        return frequencies


@dataclass(frozen=True)
class LinearScaling:
    """All positions divided by `factor`. `context` is that of the model after its training."""

    factor: float
    context: int
    attention_factor: float = 1.0

    def frequencies(self, dims: int, base: float) -> list[float]:
        """The angle between neighbouring positions of each pair, in radians."""
        half = dims // 2
        return [base ** (-i / half) / self.factor for i in range(half)]


RopeScaling = Yarn | Llama3Scaling | LinearScaling


class ScaledTable:
    """As `RotationTable`, with the frequencies of a scaling, and multiplied by its attention factor."""

    def __init__(self, dims: int, positions: int, base: float, scaling: RopeScaling):
        with mx.stream(mx.cpu):  # float64, to remove whole turns
            frequency = mx.array(scaling.frequencies(dims, base), mx.float64)
            turns = mx.arange(positions, dtype=mx.float64)[:, None] * frequency / (2 * math.pi)
            angle = ((turns - mx.round(turns)) * (2 * math.pi)).astype(mx.float32)
            self.cos = mx.cos(angle) * scaling.attention_factor
            self.sin = mx.sin(angle) * scaling.attention_factor
            mx.eval(self.cos, self.sin)


def _read_yarn(given: Mapping[str, Any], positions: int) -> Yarn:
    factor = _number(given, "factor", None, 1, MAX_FACTOR)
    usual = 0.1 * math.log(factor) + 1
    beta_slow = _number(given, "beta_slow", 1.0, 2**-10, 2**10)
    return Yarn(
        factor,
        _positions(given, positions, math.floor(MAX_POSITIONS / factor)),
        _number(given, "attention_factor", usual, 2**-10, 2**10),
        _number(given, "beta_fast", 32.0, beta_slow, 2**10),
        beta_slow,
    )


def _read_llama3(given: Mapping[str, Any], positions: int) -> Llama3Scaling:
    low = _number(given, "low_freq_factor", None, 2**-10, 2**10)
    high = _number(given, "high_freq_factor", None, low, 2**10)
    if high == low:
        raise ArgumentError("", "high_freq_factor", high, f"a number above low_freq_factor, {low:g}")
    factor = _number(given, "factor", None, 1, MAX_FACTOR)
    return Llama3Scaling(factor, _positions(given, None, MAX_POSITIONS), positions, low, high)


def _read_linear(given: Mapping[str, Any], positions: int) -> LinearScaling:
    return LinearScaling(_number(given, "factor", None, 1, MAX_FACTOR), positions)


# By `rope_type`: its reader, and the fields that it knows.
KINDS: dict[str, tuple[Callable[[Mapping[str, Any], int], RopeScaling], tuple[str, ...]]] = {
    "yarn": (_read_yarn, ("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow")),
    "llama3": (_read_llama3, ("factor", ORIGINAL, "low_freq_factor", "high_freq_factor")),
    "linear": (_read_linear, ("factor",)),
}


def read_rope_scaling(values: Mapping[str, Any] | None, positions: int, base: float) -> RopeScaling | None:
    """The checked `rope_scaling` of a config with this context and this base; None if it changes nothing.

    ArgumentError with the name of a field that is wrong or not supported.
    """
    given = {name: value for name, value in (values or {}).items() if value is not None}
    kind = given.get("rope_type", given.get("type"))
    if kind is None and (field := next((name for name in given if name not in OTHERS), None)):
        raise ArgumentError("", "rope_type", "nothing", f"{_kinds()} beside {field}")
    if kind in (None, "default"):
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ArgumentError("", "rope_type", repr(kind)[:80], f"'default', {_kinds()}")
    read, fields = KINDS[kind]
    for name in given:
        if name not in fields + OTHERS:
            raise ArgumentError("", name, repr(given[name])[:80], f"none beside {', '.join(fields)}")
    if not base > 1:
        raise ArgumentError("", "rope_theta", base, f"a number above 1 with {kind}")
    return read(given, positions)


def _kinds() -> str:
    return " or ".join(map(repr, KINDS))


def _positions(given: Mapping[str, Any], default: int | None, most: int) -> int:
    """The context of the training."""
    original = given.get(ORIGINAL, default)
    if type(original) is not int or not 1 <= original <= most:
        got = "nothing" if original is None else repr(original)[:80]
        raise ArgumentError("", ORIGINAL, got, f"a whole number from 1 to {most}")
    return original


def _number(
    given: Mapping[str, Any], name: str, default: float | None, minimum: float, maximum: float
) -> float:
    value = given.get(name, default)
    if type(value) not in (int, float) or not minimum <= value <= maximum:
        got = "nothing" if value is None else repr(value)[:80]
        raise ArgumentError("", name, got, f"a number from {minimum:g} to {maximum:g}")
    return float(value)
