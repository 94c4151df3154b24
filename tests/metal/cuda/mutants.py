"""Wrong kernels that NVIDIA's tools must find; most are from the lists of the harness."""

from __future__ import annotations

from typing import NamedTuple

from .. import decode_mutants, mutants, prefill_mutants
from ..mutants import MUTANTS, Mutant

READABLE, PREFILL, DECODE = "L=33 S=65", "prefill f32", "decode f32"


class Watched(NamedTuple):
    """A mutant, the tool that must find it, and the cases that it runs."""

    mutant: Mutant
    tool: str
    cases: str = READABLE

    @property
    def is_fast(self) -> bool:
        return self.cases != READABLE


def named(name: str) -> Mutant:
    (found,) = [mutant for mutant in MUTANTS if mutant.name == name]
    return found


# The row that a SIMD group loads is its own: without the barrier its lanes race with each other. Here it
# loads the row of a neighbour, so that SIMD groups would race.
NEIGHBOUR = Mutant(
    "a SIMD group loads the next row, without a barrier",
    f"q[r][e] = query[at_row + e];\n      o[r][e] = 0.0f;\n    }}\n  }}\n  {mutants.BARRIER}",
    "q[r ^ 1][e] = query[at_row + e];\n      o[r][e] = 0.0f;\n    }\n  }",
)
ADDED_TO = Mutant(
    "the output is added to",
    "output[at_row + e] = l == 0.0f",
    "output[at_row + e] += l == 0.0f",
)
KEYS_READ = Mutant("values overwrite keys that are still read", prefill_mutants.KEYS_READ, "")
VALUES_READ = Mutant("keys overwrite values that are still read", prefill_mutants.VALUES_READ, "")
KEYS_LOADED = Mutant("keys are read before they are there", prefill_mutants.LOADED + "multiply", "multiply")
VALUES_LOADED = Mutant("values are read before they are there", prefill_mutants.LOADED + "add", "add")
PARTS = Mutant("the parts are read before they are there", decode_mutants.BARRIER, "")

WATCHED = (
    Watched(named("no barrier behind the load"), "racecheck"),
    Watched(NEIGHBOUR, "racecheck"),
    Watched(named("all rows share one"), "racecheck"),
    Watched(named("keys beyond the end"), "memcheck"),
    Watched(named("output rows beyond the end"), "memcheck"),
    Watched(named("a barrier in a branch"), "synccheck"),
    Watched(ADDED_TO, "initcheck"),
    Watched(KEYS_READ, "racecheck", PREFILL),
    Watched(VALUES_READ, "racecheck", PREFILL),
    Watched(KEYS_LOADED, "racecheck", PREFILL),
    Watched(VALUES_LOADED, "racecheck", PREFILL),
    Watched(PARTS, "racecheck", DECODE),
)
