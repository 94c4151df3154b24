"""`pdm bench attention`: attention of tiny_llm, MLX and PyTorch, and the limits of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from benches.cases.attention import GROUPS, Case, cases, is_quick
from benches.contestants import attention as contestants
from benches.contestants.attention import Inputs
from benches.contestants.attention_memory import extra_bytes
from benches.harness import ceilings
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Contestant, Operation
from benches.harness.measure import Outcome, measure_threads
from benches.harness.row import Row
from benches.names import NO_WINDOW, PYTORCH, TINY_LLM, Missing
from benches.report.shares import shares
from benches.suite import Record, Suite
from benches.targets.attention import judge
from tiny_llm.runtime.extension import load_extension


def rows_of(case: Case, isas: list[str], threads: list[int], repeats: int) -> Iterator[Row]:
    """A row for each number of threads, except memory, which does not depend on it."""
    if case.group == "avx2":
        if "avx2" not in isas:
            yield _row(case, threads[-1], missing={TINY_LLM: "no AVX2, or not selected by --isa"})
            return
        isas = ["avx2"]
    if case.group in ("window", "decode", "memory"):
        isas = isas[:1]  # these groups do not compare instruction sets
    if case.group == "memory":
        yield _memory_row(case, isas[0], threads[-1])
        return
    work = _Work(case, isas)
    for row, outcomes in measure_threads(work.measurable, threads, repeats):
        row.details = _details(case)
        if case.window is not None:
            row.details["tiles"] = _visited_tiles(outcomes)
        row.verdicts.extend(judge(case, row))
        yield row


class _Work:
    """A case with its inputs and the right results, which all numbers of threads share."""

    def __init__(self, case: Case, isas: list[str]):
        self._case, self._isas, self._inputs = case, isas, Inputs(case)
        self._gate = contestants.gate(case, self._inputs)
        self.measurable = Measurable(case.group, case.name, self._build)

    def _build(self, threads: int) -> Operation:
        case, inputs = self._case, self._inputs
        found = [
            contestants.tiny_llm(case, inputs, isa, threads, baseline=isa != self._isas[0])
            for isa in self._isas
        ]
        operation = Operation(case.dtype, case.flops, 0, self._gate, found)
        if case.group == "decode":
            operation.bytes = case.kv_bytes
            operation.empty_call = ceilings.empty_call(case.dtype, case.D, self._isas[0], threads)
        if case.window is not None:
            found.append(self._without_window(threads))
        elif case.group != "avx2":  # whose peers are in the rows of f32
            self._add_peers(operation, threads)
        return operation

    def _without_window(self, threads: int) -> Contestant:
        whole = replace(self._case, window=None, causal=False)
        gate = contestants.gate(whole, self._inputs)
        return contestants.tiny_llm(
            whole, self._inputs, self._isas[0], threads,
            name=NO_WINDOW, baseline=False, flops=whole.flops, gate=gate,
        )  # fmt: skip

    def _add_peers(self, operation: Operation, threads: int) -> None:
        case, inputs = self._case, self._inputs
        operation.contestants += [contestants.mx_fast(case, inputs), contestants.grouped(case, inputs)]
        try:
            operation.contestants.append(contestants.pytorch(case, inputs, threads))
        except Missing as reason:
            operation.missing[PYTORCH] = str(reason)


def _details(case: Case) -> Record:
    return {**case.record(), "tiles": None, "extra_bytes": {}}


def _row(case: Case, threads: int, missing: dict[str, str] | None = None) -> Row:
    return Row(case.group, case.name, threads, case.flops, missing=missing or {}, details=_details(case))


def _memory_row(case: Case, isa: str, threads: int) -> Row:
    row = _row(case, threads)
    row.details["extra_bytes"] = extra_bytes(case, isa, threads)
    row.verdicts.extend(judge(case, row))
    return row


def _visited_tiles(outcomes: dict[str, Outcome]) -> tuple[int, int]:
    """Tiles that attention with a window visits, and all tiles."""
    next(iter(outcomes.values())).contestant.call()
    last = load_extension().last_run()
    return int(last["tiles_visited"]), int(last["tiles_total"])


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    return rows_of(case, _chosen_isas(options), options.threads, options.repeats)


def _chosen_isas(options: argparse.Namespace) -> list[str]:
    """The instruction sets of `--isa`, best first; without it all that the machine has."""
    chosen, available = options.isa, list(load_extension().cpu_isas())
    unknown = [isa for isa in chosen or [] if isa not in available]
    if unknown:
        raise SystemExit(
            f"bench attention: --isa: got {', '.join(unknown)}, expected some of {', '.join(available)}"
        )
    return [isa for isa in available if not chosen or isa in chosen]


def _prepare(options: argparse.Namespace) -> Record:
    return {"isas": _chosen_isas(options)}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--isa", nargs="+", metavar="NAME",
        help="instruction sets of tiny_llm, such as avx2 avx512 (default: all that this machine has)",
    )  # fmt: skip


SUITE = Suite(
    name="attention",
    about="Measures attention of tiny_llm, mx.fast, plain MLX operations (grouped) and PyTorch, in one\n"
    "process and in turn. Every result is checked before it is timed. Rows end with their targets, which\n"
    "are defined for two threads. A full run takes about half an hour.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=_rows,
    plot=shares,
    add_arguments=_add_arguments,
    prepare=_prepare,
    peers=(PYTORCH,),
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
