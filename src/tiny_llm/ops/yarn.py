"""YaRN (Peng and others, 2023): RoPE for texts longer than those that a model was trained on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError

ORIGINAL = "original_max_position_embeddings"
FIELDS = ("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow")
OTHERS = ("rope_type", "type", "rope_theta")
MAX_POSITIONS = 2**24


@dataclass(frozen=True)
class Yarn:
    """A context `factor` times as long as the `original` one of the training.

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


class YarnTable:
    """As `RotationTable`, with the frequencies of YaRN, and multiplied by its attention factor."""

    def __init__(self, dims: int, positions: int, base: float, yarn: Yarn):
        with mx.stream(mx.cpu):  # float64, to remove whole turns
            frequency = mx.array(yarn.frequencies(dims, base), mx.float64)
            turns = mx.arange(positions, dtype=mx.float64)[:, None] * frequency / (2 * math.pi)
            angle = ((turns - mx.round(turns)) * (2 * math.pi)).astype(mx.float32)
            self.cos = mx.cos(angle) * yarn.attention_factor
            self.sin = mx.sin(angle) * yarn.attention_factor
            mx.eval(self.cos, self.sin)


def read_rope_scaling(values: Mapping[str, Any] | None, positions: int, base: float) -> Yarn | None:
    """The checked `rope_scaling` of a config with this context and this base; None if it changes nothing.

    ArgumentError with the name of a field that is wrong or not supported.
    """
    given = {name: value for name, value in (values or {}).items() if value is not None}
    kind = given.get("rope_type", given.get("type"))
    if kind is None and (field := next((name for name in FIELDS if name in given), None)):
        raise ArgumentError("", "rope_type", "nothing", f"'yarn' beside {field}")
    if kind in (None, "default"):
        return None
    if kind != "yarn":
        raise ArgumentError("", "rope_type", repr(kind)[:80], "'default' or 'yarn'")
    for name in given:
        if name not in FIELDS + OTHERS:
            raise ArgumentError("", name, repr(given[name])[:80], f"none beside {', '.join(FIELDS)}")
    if not base > 1:
        raise ArgumentError("", "rope_theta", base, "a number above 1 with yarn")
    factor = _number(given, "factor", None, 1, 2**10)
    original = given.get(ORIGINAL, positions)
    if type(original) is not int or not 1 <= original <= MAX_POSITIONS / factor:
        limit = math.floor(MAX_POSITIONS / factor)
        raise ArgumentError("", ORIGINAL, repr(original)[:80], f"a whole number from 1 to {limit}")
    usual = 0.1 * math.log(factor) + 1
    beta_slow = _number(given, "beta_slow", 1.0, 2**-10, 2**10)
    return Yarn(
        factor,
        original,
        _number(given, "attention_factor", usual, 2**-10, 2**10),
        _number(given, "beta_fast", 32.0, beta_slow, 2**10),
        beta_slow,
    )


def _number(
    given: Mapping[str, Any], name: str, default: float | None, minimum: float, maximum: float
) -> float:
    value = given.get(name, default)
    if type(value) not in (int, float) or not minimum <= value <= maximum:
        got = "nothing" if value is None else repr(value)[:80]
        raise ArgumentError("", name, got, f"a number from {minimum:g} to {maximum:g}")
    return float(value)
