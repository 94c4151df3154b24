"""`pdm bench threads`: what more threads bring: the thread pool, steps of a model by operation, efficiency.

`pdm bench threads --choose` measures which number of threads decoding should have, in a second or two.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from benches.cases import attention, pages, varlen
from benches.cases.models import CONTEXT, work
from benches.cases.threads import GROUPS, LARGE, Attention, Case, ModelStep, PoolCost, cases, is_quick
from benches.cases.training import WORK
from benches.contestants import attention as forward
from benches.contestants import packed, training
from benches.contestants import pages as paged
from benches.contestants.worker import Service, WorkerOptions, build_service
from benches.harness import ceilings, machine
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure
from benches.harness.regions import RegionLog, by_operation
from benches.harness.row import Entry, Row, share
from benches.harness.thread_choice import choose
from benches.names import TINY_LLM
from benches.report.threads import page, picture
from benches.suite import Suite, run
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import Samples, interleave

LOGGED = 32  # tokens whose regions are counted
TARGET_THREADS = 8
SHARE_OF_BANDWIDTH, SHARE_OF_LARGE = 0.75, 0.85  # of a decode step


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a result of tiny_llm was wrong."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given == ["--choose"]:
        try:
            print(choose())
        except RuntimeError as reason:  # a machine too busy to measure
            print(f"bench threads: {reason}", file=sys.stderr)
            return 1
        return 0
    return run(SUITE, given)


def rows_of(case: Case, threads: int, repeats: int) -> Iterator[Row]:
    """One row; `threads` is the number of the process."""
    match case:
        case PoolCost():
            yield _pool_row(case, threads, repeats)
        case ModelStep():
            yield _model_row(case, threads, repeats)
        case Attention():
            yield measure(attention_case(case), threads, repeats)[0]
        case _:
            yield measure(only_ours(case), threads, repeats)[0]


def _pool_row(case: PoolCost, threads: int, repeats: int) -> Row:
    row = Row(case.group, case.name, threads, gate="every thread takes part")
    try:
        costs = _pool_costs(threads, repeats)
    except (ValueError, RuntimeError) as reason:  # more threads than a quota allows, or all are taken
        row.missing[TINY_LLM] = str(reason)
        return row
    row.entries.append(Entry(TINY_LLM, None, "", 0.0, costs[case.key], 0.0, 0.0))
    row.ceilings[ceilings.OTHERS] = costs[ceilings.OTHERS]
    return row


@cache
def _pool_costs(threads: int, repeats: int) -> dict[str, Samples]:
    """All costs are measured together, and how busy other processes are."""
    measure_once = load_extension().pool_costs
    found = [measure_once(threads) | {ceilings.OTHERS: machine.others_running()} for _ in range(repeats)]
    return {key: Samples(tuple(each[key] for each in found)) for key in found[0]}


def _model_row(step: ModelStep, threads: int, repeats: int) -> Row:
    """The time of a step or a prefill, then its regions, in calls that are not timed for the row."""
    service, case = _service(step.case.model, step.case.dtype, threads), step.case
    row = Row(step.group, step.name, threads, gate="the logits are checked by `bench peers`")
    row.flops, row.bytes = work(case, service.weights())
    log = RegionLog()
    if step.kind == "decode":
        service.start_decoding(TINY_LLM, step.prompt)
        sample, calls = partial(service.decode, TINY_LLM, case.tokens), LOGGED
        row.tokens = 1
    else:
        sample, calls = partial(service.prefill, TINY_LLM, step.prompt), 1
        row.tokens = step.prompt
    limits = ceilings.of_model(case.dtype, row.bytes, threads)
    _, samples = interleave({}, repeats=repeats, probes={TINY_LLM: sample, **limits})
    seconds = samples.pop(TINY_LLM)
    row.ceilings = samples
    floor = ceilings.floor(row.flops, row.bytes, samples, load_extension().cpu_isa())
    row.entries.append(Entry(TINY_LLM, None, "", 0.0, seconds, row.flops, floor))
    if step.kind == "decode":
        service.start_decoding(TINY_LLM, step.prompt)
        logged = service.decode(TINY_LLM, LOGGED, log.timed)
        if threads == TARGET_THREADS:
            limit = SHARE_OF_LARGE if case.model == LARGE else SHARE_OF_BANDWIDTH
            row.verdicts.append(share(row.subject(), "share of the read bandwidth", limit))
    else:
        logged = service.prefill(TINY_LLM, step.prompt, log.timed)
    operations = by_operation(log.regions, calls)
    row.details = {
        "logged_seconds": logged,
        "outside": logged - sum(each.seconds for each in operations),
        "operations": [each.record() for each in operations],
    }
    return row


@cache
def _service(model: str, dtype: str, threads: int) -> Service:
    return build_service(WorkerOptions(TINY_LLM, model, dtype, threads, CONTEXT))


def only_ours(case: Measurable) -> Measurable:
    """A case of another benchmark without its other contestants."""

    def build(threads: int) -> Operation:
        operation = case.build(threads)
        operation.contestants = [each for each in operation.contestants if each.name == TINY_LLM]
        operation.missing = {}
        return operation

    return replace(case, build=build)


def attention_case(each: Attention) -> Measurable:
    """An attention of `bench attention`, `training` or `packed`."""
    return Measurable(each.group, each.name, lambda threads: _operation(each, threads))


def _operation(each: Attention, threads: int) -> Operation:
    match each.case:
        case attention.Case() as case if each.what == "backward":
            whole = training.Inputs(case)
            found, gate = training.tiny_llm(case, whole, threads), training.gate(case, whole)
            return Operation(case.dtype, WORK * case.flops, 0, gate, [found])
        case attention.Case() as case:
            inputs, isa = forward.Inputs(case), load_extension().cpu_isa()
            own = forward.tiny_llm(case, inputs, isa, threads, baseline=False)
            nbytes = case.kv_bytes if case.L == 1 else 0
            return Operation(case.dtype, case.flops, nbytes, forward.gate(case, inputs), [own])
        case varlen.Varlen() as case:
            prompts = packed.Inputs(case)
            found, gate = packed.tiny_llm(case, prompts, threads), packed.gate(case, prompts)
            return Operation(case.dtype, case.flops, 0, gate, [found])
        case pages.Paged() as case:
            pool = paged.Inputs(case)
            found, gate = paged.tiny_llm(case, pool, threads), paged.gate(case, pool)
            return Operation(case.dtype, case.flops, case.kv_bytes, gate, [found])


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    (threads,) = options.threads  # of this process
    return rows_of(case, threads, options.repeats)


def thread_counts(cpus: int) -> list[int]:
    """The powers of two up to all of them, and all."""
    return sorted({cpus, *(1 << k for k in range(cpus.bit_length()) if 1 << k <= cpus)})


SUITE = Suite(
    name="threads",
    about="Measures what more threads bring, with a process for each number of threads: what the thread\n"
    "pool costs, steps of a model with their parallel regions by operation, and operations that should use\n"
    "all cores. --choose alone measures in a second or two how many threads decoding should have here, and\n"
    "prints the value of TINY_LLM_THREADS.",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=_rows,
    plot=picture,
    table=page,
    repeats=7,
    process_for_threads=True,
    threads=thread_counts(machine.cpus()),
)

if __name__ == "__main__":
    raise SystemExit(main())
