"""Covering arrays: few rows that contain every pair of values of any two factors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import mlx.core as mx
import pytest

CANDIDATE_ROWS = 40  # random rows, of which the best is taken

Row = dict[str, Any]
Pair = tuple[str, int, str, int]  # factor and index of its value, twice


def pairs_of(row: Mapping[str, int]) -> set[Pair]:
    return {(a, row[a], b, row[b]) for a, b in combinations(sorted(row), 2)}


def covering(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> list[Row]:
    """Greedy and seeded: of random rows that contain a missing pair, the one with most missing pairs."""
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
            for _ in range(CANDIDATE_ROWS)
        ]
        best = max(candidates, key=lambda row: len(missing & pairs_of(row)))
        missing -= pairs_of(best)
        rows.append({name: factors[name][index] for name, index in best.items()})
    return rows


def pairwise(factors: Mapping[str, Sequence[Any]]) -> pytest.MarkDecorator:
    """Parametrize a test with the rows of `covering`.

    A factor has the name of an argument, or of several, separated by commas; then its values are tuples.
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
