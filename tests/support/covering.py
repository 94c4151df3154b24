"""Few rows that contain every pair of values of any two factors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import mlx.core as mx
import pytest

CANDIDATES = 40  # rows tried for each that is taken

Row = dict[str, Any]
Pair = tuple[str, int, str, int]  # two factors, and which of their values


def pairs_of(row: Mapping[str, int]) -> set[Pair]:
    return {(a, row[a], b, row[b]) for a, b in combinations(sorted(row), 2)}


def covering(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[Row]:
    """Greedy, and the same each time: of some random rows that hold a missing pair, the one that has most."""
    generator = random.Random(seed)
    names = sorted(factors)
    missing = {
        (a, i, b, j)
        for a, b in combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    rows = []
    while missing:
        a, i, b, j = min(missing)
        candidates = [
            {**{name: generator.randrange(len(factors[name])) for name in names}, a: i, b: j}
            for _ in range(CANDIDATES)
        ]
        best = max(candidates, key=lambda row: len(missing & pairs_of(row)))
        missing -= pairs_of(best)
        rows.append({name: factors[name][index] for name, index in best.items()})
    return rows


def every_pair(factors: Mapping[str, Sequence[Any]]) -> pytest.MarkDecorator:
    """Parametrize a test with rows of `covering`, where all combinations would repeat each other.

    A factor is named like its argument, or like several of them, separated by commas: its values are tuples.
    """
    names = [name for factor in factors for name in factor.split(",")]
    cases = []
    for row in covering(factors):
        values = [value for factor in factors for value in (row[factor] if "," in factor else (row[factor],))]
        cases.append(pytest.param(*values, id="-".join(map(label, values))))
    return pytest.mark.parametrize(names, cases)


def label(value: Any) -> str:
    if isinstance(value, mx.Dtype):
        return str(value).removeprefix("mlx.core.")
    return getattr(value, "__name__", str(value))
