"""`pdm bench engine`: many requests at once in one process, beside llama.cpp and beside our own parts."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from benches.cases.engine import COPY, FREE_TEXT, GROUPS, LONG_PROMPT, QUESTION, Case, cases, is_quick
from benches.contestants.worker import Worker
from benches.contestants.worker_pool import WorkerPool
from benches.harness.ceilings import OTHERS
from benches.harness.machine import others_running
from benches.harness.row import Entry, Row
from benches.names import (
    FIRST,
    FORMS,
    FREE,
    LLAMA_CPP,
    LOOP,
    NO_BUDGET,
    NO_DRAFT,
    NO_LOOKUP,
    ONE_STREAM,
    QUIET,
    TINY_LLM,
    WHOLE_STEP,
    Missing,
)
from benches.report.latencies import bars
from benches.report.tables import markdown
from benches.suite import Record, Suite, run
from benches.targets.engine import judge
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import SETTLE_SECONDS, Samples, turns

# `EngineService.error`: rounding at 16 bits, and to 8 bits in llama.cpp. Other tokens are some units away.
TOLERANCE, TOLERANCE_LLAMA_CPP = 0.15, 0.5
GATE = (
    f"the model alone gives each token its best logit, or one that is at most {TOLERANCE:g} standard "
    f"deviations of the logits lower ({TOLERANCE_LLAMA_CPP:g} for llama.cpp, which rounds to 8 bits)"
)
CONTEXT = LONG_PROMPT + 1024  # of our engines
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A call that returns tokens of `prompts` and a value for each of some contestants."""

    call: Callable[[], Result]
    prompts: Sequence[Sequence[int]]
    values: Mapping[str, Callable[[Result], float]]
    schema: bool = False

    def sample(self) -> dict[str, float]:
        """The value of each contestant."""
        result = self.call()
        return {name: value(result) for name, value in self.values.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if tokens of tiny_llm were wrong; missed targets and missing peers are only reported."""
    with WorkerPool(module="benches.contestants.engine.worker") as pool:

        def rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
            yield row_of(pool, case, options.threads[-1], options.repeats)

        return run(replace(SUITE, measure=rows), argv)


def row_of(pool: WorkerPool, case: Case, threads: int, repeats: int) -> Row:
    """The row of a case with its targets. The first call of each contestant is checked, and not timed."""
    pool.keep_only(case.model, threads)
    own = pool.worker(TINY_LLM, case.model, case.dtype, threads, CONTEXT)
    row = Row(case.group, case.name, threads, tokens=int(case.is_rate), gate=GATE)
    calls = list(measured(case, own))
    if case.kind in ("streams", "decode"):
        try:
            calls += _llama_cpp(pool, case, threads)
        except Missing as reason:
            row.missing[LLAMA_CPP] = str(reason)
    errors: dict[str, float] = {}
    for each in calls:
        result = each.call()
        if result.get("drafted"):
            row.details = {"drafted": result["drafted"], "accepted": result["accepted"]}
        error = own.call("error", prompts=each.prompts, answers=result["tokens"], schema=each.schema)
        errors |= dict.fromkeys(each.values, error)
    right = [each for each in calls if all(errors[name] <= _tolerance(name) for name in each.values)]
    samples = defaultdict(list)
    for _, sample in turns([*(each.sample for each in right), _others], repeats):
        time.sleep(SETTLE_SECONDS)
        for name, value in sample().items():
            samples[name].append(value)
    found = {name: Samples(tuple(values)) for name, values in samples.items()}
    row.ceilings[OTHERS] = found.pop(OTHERS)
    row.add_entries(Entry(name, None, "", error, found.get(name), 0.0, 0.0) for name, error in errors.items())
    row.verdicts.extend(judge(case, row, load_extension().cpu_isa()))
    return row


def measured(case: Case, worker: Worker) -> Iterator[Measured]:
    """The calls of a case that our own process answers, those of the subject first."""
    prompts = case.prompts()
    if case.text in (COPY, FREE_TEXT):
        prompts = [worker.call("chat", question=QUESTION, again=case.text == COPY, output=case.output)]

    def call(name: str, method: str = "answers", count: int | None = None, **options: Any) -> Measured:
        """Some of the prompts; the time of a token."""
        some, schema = prompts[:count], options.get("schema", False)
        call = partial(worker.call, method, prompts=some, output=case.output, **options)
        return Measured(call, some, {name: _token(case)}, schema)

    match case.kind:
        case "streams" | "decode":
            yield call(TINY_LLM)
            yield call(ONE_STREAM, "loop", 1)
        case "step":
            steps = partial(worker.call, "steps", prompts=prompts, output=case.output)
            yield Measured(steps, prompts, {TINY_LLM: itemgetter("outside"), WHOLE_STEP: itemgetter("step")})
        case "rate":
            yield call(TINY_LLM)
            yield call(LOOP, "loop")
        case "gap":
            gaps = partial(worker.call, "gaps", prompts=prompts)
            yield Measured(gaps, prompts, {TINY_LLM: itemgetter("p99"), QUIET: itemgetter("quiet")})
        case "total":
            for name, bounded in ((TINY_LLM, True), (NO_BUDGET, False)):
                gaps = partial(worker.call, "gaps", prompts=prompts, bounded=bounded)
                yield Measured(gaps, prompts, {name: _token(case)})
        case "prefix":
            both = partial(worker.call, "first_tokens", prompts=prompts, output=case.output)
            yield Measured(both, prompts, {TINY_LLM: itemgetter("second"), FIRST: itemgetter("first")})
        case "lookup":
            yield call(TINY_LLM, lookup=True)
            yield call(NO_LOOKUP)
        case "draft":
            yield call(TINY_LLM, "unpacked", draft=True)
            yield call(NO_DRAFT, "unpacked", draft=False)
        case "schema":
            yield call(TINY_LLM, schema=True)
            yield call(FREE)


def _llama_cpp(pool: WorkerPool, case: Case, threads: int) -> Iterator[Measured]:
    prompts = case.prompts()
    worker = pool.worker(LLAMA_CPP, case.model, case.dtype, threads, case.prompt + case.output)
    for form in FORMS[LLAMA_CPP]:
        call = partial(worker.call, "answers", prompts=prompts, output=case.output, form=form)
        yield Measured(call, prompts, {form: _token(case)})


def _token(case: Case) -> Callable[[Result], float]:
    """From a result to the time of a token. Drafts do not concern the prompt either."""
    return itemgetter("decoded" if case.kind in ("decode", "lookup", "draft") else "token")


def _tolerance(name: str) -> float:
    return TOLERANCE_LLAMA_CPP if name in FORMS[LLAMA_CPP] else TOLERANCE


def _others() -> dict[str, float]:
    return {OTHERS: others_running()}


def page(record: Record) -> str:
    """The tables, the drafts, and the instruction set, by which the targets of streams are chosen."""
    amx = "with AMX" if record["isa"] == "amx" else "without AMX"
    drafts = [
        f"- {row['row']}: {row['accepted']} of {row['drafted']} drafts were right"
        for row in record["rows"]
        if "drafted" in row
    ]
    return "\n\n".join(
        [f"Our kernels use {record['isa']}: {amx}.", markdown(record), *filter(None, ["\n".join(drafts)])]
    )


SUITE = Suite(
    name="engine",
    about="Measures `tiny_llm.engine.Engine` in its own process, without HTTP, with the largest number of\n"
    "threads: requests at once beside llama.cpp's batched decode on the same weights, and the engine\n"
    "beside itself with one thing less. Tokens are compared with those of the model alone before the\n"
    "measurement. llama.cpp takes part if it is installed (docs/benchmarks.md).",
    groups=GROUPS,
    cases=cases,
    is_quick=is_quick,
    measure=lambda case, options: iter(()),
    table=page,
    plot=bars,
    repeats=7,
    peers=(LLAMA_CPP,),
    prepare=lambda options: {"isa": load_extension().cpu_isa()},
)

if __name__ == "__main__":
    raise SystemExit(main())
