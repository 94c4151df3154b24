"""Targets of `pdm bench engine`."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.engine import FREE_TEXT, Case
from benches.cases.models import EMBEDDED
from benches.harness.row import Row, Verdict, speedup
from benches.names import FIRST, FREE, LLAMA_CPP, LOOP, NO_BUDGET, NO_LOOKUP, ONE_STREAM, QUIET, TINY_LLM

OVER_LLAMA_CPP = 1.2  # of the rate of all streams, with their prompts and after them
# The same, by whether the machine multiplies with AMX.
OVER_ONE_STREAM = {True: 3.5, False: 2.2}
SECONDS_OUTSIDE_KERNELS = 0.5e-3  # of a step
RATE_OF_LOOP, RATE_OF_LOOP_EMBEDDED = 0.95, 0.85
GAP = 3.0  # of the gap without a prompt
RATE_OF_NO_BUDGET = 0.85
SECOND_FIRST_TOKEN = 0.10
COPY_OVER_NO_LOOKUP, FREE_OVER_NO_LOOKUP = 1.5, 0.97
RATE_OF_FREE = 0.90


def judge(case: Case, row: Row, isa: str) -> Iterator[Verdict]:
    """`isa`: the instruction set of our kernels."""
    match case.kind:
        case "streams" | "decode":
            yield speedup(row, LLAMA_CPP, OVER_LLAMA_CPP)
            yield speedup(row, ONE_STREAM, OVER_ONE_STREAM[isa == "amx"])
        case "step":
            seconds = row.seconds(TINY_LLM)
            yield Verdict("time of a step outside kernels", "<=", SECONDS_OUTSIDE_KERNELS, seconds, "s")
        case "rate":
            limit = RATE_OF_LOOP_EMBEDDED if case.model == EMBEDDED else RATE_OF_LOOP
            yield _rate(row, LOOP, limit)
        case "gap":
            yield _time(row, "99th percentile of the gap over the gap without", QUIET, GAP, "x")
        case "total":
            yield _rate(row, NO_BUDGET, RATE_OF_NO_BUDGET)
        case "prefix":
            yield _time(row, "time to first token over that of the first", FIRST, SECOND_FIRST_TOKEN, "share")
        case "lookup":
            limit = FREE_OVER_NO_LOOKUP if case.text == FREE_TEXT else COPY_OVER_NO_LOOKUP
            yield speedup(row, NO_LOOKUP, limit)
        case "schema":
            yield _rate(row, FREE, RATE_OF_FREE)


def _rate(row: Row, peer: str, limit: float) -> Verdict:
    own, other = row.seconds(TINY_LLM), row.seconds(peer)
    return Verdict(f"rate over {peer}", ">=", limit, other / own if own and other else None, "share")


def _time(row: Row, what: str, peer: str, limit: float, unit: str) -> Verdict:
    own, other = row.seconds(TINY_LLM), row.seconds(peer)
    return Verdict(what, "<=", limit, own / other if own and other else None, unit)
