"""Mutants that NVIDIA's tools must find; most are from the lists of the harness."""

from __future__ import annotations

from typing import NamedTuple

from ..mutants.decode import DECODE_MUTANTS
from ..mutants.mutant import Mutant
from ..mutants.prefill import PREFILL_MUTANTS
from ..mutants.readable import BARRIER, READABLE_MUTANTS

READABLE, PREFILL, DECODE = "L=33 S=65", "prefill f32", "decode f32"


class Watched(NamedTuple):
    """A mutant, the tool that must find it, and the cases that it runs."""

    mutant: Mutant
    tool: str
    cases: str = READABLE

    @property
    def is_fast(self) -> bool:
        return self.cases != READABLE


def named(name: str, mutants: tuple[Mutant, ...] = READABLE_MUTANTS) -> Mutant:
    (found,) = [mutant for mutant in mutants if mutant.name == name]
    return found


# A SIMD group loads its own row: without the barrier, only its lanes race. Here it loads its neighbour's row,
# so SIMD groups race.
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

# CUDA allows whole warps to miss a barrier after they have exited, so half a warp misses it here.
HALF = Mutant("half a SIMD group misses a barrier", BARRIER, f"if (lane < 16) {BARRIER}")

WATCHED = (
    Watched(named("no barrier after the load"), "racecheck"),
    Watched(NEIGHBOUR, "racecheck"),
    Watched(named("all rows share one"), "racecheck"),
    Watched(named("keys beyond the end"), "memcheck"),
    Watched(named("output rows beyond the end"), "memcheck"),
    Watched(HALF, "synccheck"),
    Watched(ADDED_TO, "initcheck"),
    Watched(named("values overwrite keys that are still read", PREFILL_MUTANTS), "racecheck", PREFILL),
    Watched(named("keys overwrite values that are still read", PREFILL_MUTANTS), "racecheck", PREFILL),
    Watched(named("keys are read before they are written", PREFILL_MUTANTS), "racecheck", PREFILL),
    Watched(named("values are read before they are written", PREFILL_MUTANTS), "racecheck", PREFILL),
    Watched(named("the parts are read before they are written", DECODE_MUTANTS), "racecheck", DECODE),
)
