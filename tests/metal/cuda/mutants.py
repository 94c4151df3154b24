"""Wrong kernels that NVIDIA's tools must find; most are from the lists of the harness."""

from __future__ import annotations

from typing import NamedTuple

from ..mutants import BARRIER, MUTANTS, Mutant


class Watched(NamedTuple):
    """A mutant, and the tool that must find it."""

    mutant: Mutant
    tool: str


def named(name: str) -> Mutant:
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


# The row that a SIMD group loads is its own: without the barrier its lanes race with each other. Here it
# loads the row of a neighbour, so that SIMD groups would race.
NEIGHBOUR = Mutant(
    "a SIMD group loads the next row, without a barrier",
    f"q[r][e] = query[at_row + e];\n      o[r][e] = 0.0f;\n    }}\n  }}\n  {BARRIER}",
    "q[r ^ 1][e] = query[at_row + e];\n      o[r][e] = 0.0f;\n    }\n  }",
)
ADDED_TO = Mutant(
    "the output is added to",
    "output[at_row + e] = l == 0.0f",
    "output[at_row + e] += l == 0.0f",
)

WATCHED = (
    Watched(named("no barrier behind the load"), "racecheck"),
    Watched(NEIGHBOUR, "racecheck"),
    Watched(named("all rows share one"), "racecheck"),
    Watched(named("keys beyond the end"), "memcheck"),
    Watched(named("output rows beyond the end"), "memcheck"),
    Watched(named("a barrier in a branch"), "synccheck"),
    Watched(ADDED_TO, "initcheck"),
)
