"""`pdm bench peers`: whole models of tiny_llm, llama.cpp, OpenVINO and mlx-lm on the same weights."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benches.cases.models import CONTEXT, GROUPS, Case, cache_bytes, cases, is_quick, model_shape, work
from benches.contestants import startup
from benches.contestants.footprint import footprint
from benches.contestants.worker import Worker
from benches.contestants.worker_pool import WorkerPool
from benches.harness import ceilings
from benches.harness.machine import cpus
from benches.harness.row import Entry, Row
from benches.names import BATCH, FORMS, LLAMA_CPP, MLX_LM, OPENVINO, SEQUENCES, STEP, TINY_LLM, Missing
from benches.suite import Suite, run
from benches.targets.models import judge, memory_verdict
from tiny_llm.runtime.extension import load_extension
from tiny_llm_tools.benchmark.clock import interleave

# Largest distance of two vectors of logits, relative to the norm of the second. llama.cpp and OpenVINO round
# activations to 8 bits, tiny_llm has bfloat16: 0.02 to 0.03 is usual. A wrong order of anything gives more
# than 1.
TOLERANCE = 0.08
SLOW_REPEATS = 3  # of mlx-lm, which takes seconds for a token
Logits = NDArray[np.float64]
Probes = dict[str, Callable[[], float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if logits of tiny_llm were wrong; missed targets and missing peers are only reported."""
    with WorkerPool() as pool:

        def rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
            return rows_of(pool, case, options.threads, options.repeats)

        suite = Suite(
            name="peers",
            about="Measures whole models on the same weights of 4 bits: tiny_llm, llama.cpp, OpenVINO and\n"
            "mlx-lm, in a process each and in turn. The logits after a prompt are compared before the\n"
            "measurement. llama.cpp and OpenVINO take part if they are installed (docs/benchmarks.md).",
            groups=GROUPS,
            cases=cases,
            is_quick=is_quick,
            measure=rows,
            repeats=7,
            peers=(LLAMA_CPP, OPENVINO, MLX_LM),
        )
        return run(suite, argv)


def rows_of(pool: WorkerPool, case: Case, threads: list[int], repeats: int) -> Iterator[Row]:
    """A row for each number of threads, except start-up and memory, which do not depend on it."""
    if case.kind == "start":
        yield _startup_row(case, repeats)
        return
    for count in threads[-1:] if case.kind == "memory" else threads:
        pool.keep_only(case.model, count)
        row = _memory_row(case, count) if case.kind == "memory" else _timed_row(pool, case, count, repeats)
        row.verdicts.extend(judge(case, row))
        yield row


def _timed_row(pool: WorkerPool, case: Case, threads: int, repeats: int) -> Row:
    row = Row(case.group, case.name, threads)
    workers = _workers(pool, case, threads, row)
    errors = _errors(workers, case)
    row.gate = f"logits after the prompt, at most {TOLERANCE:g} of their norm apart"
    if not errors.keys() & _forms(case):
        row.gate = "not checked here: no peer takes part"
    row.tokens = case.prompt if case.kind == "prefill" else 1
    row.flops, row.bytes = work(case, workers[TINY_LLM].call("weights"))

    right = [name for name in workers if errors[name] <= TOLERANCE]
    probes: Probes = {name: _sample(workers[name], name, case) for name in right}
    limits = ceilings.of_model(case.dtype, _bytes_of_step(case, row), threads)
    rounds = min(repeats, SLOW_REPEATS) if MLX_LM in case.peers else repeats
    _, samples = interleave({}, repeats=rounds, probes={**probes, **limits})
    row.ceilings = {name: samples.pop(name) for name in limits}
    floor = ceilings.floor(row.flops, row.bytes, row.ceilings, load_extension().cpu_isa())
    row.add_entries(
        Entry(name, None, "", errors[name], samples.get(name), row.flops, floor) for name in workers
    )
    return row


def _bytes_of_step(case: Case, row: Row) -> int:
    """Bytes that a step reads, for all sequences: the size of the buffer of the bandwidth probe."""
    return row.bytes * (SEQUENCES if case.kind == "batch" else 1)


def _workers(pool: WorkerPool, case: Case, threads: int, row: Row) -> dict[str, Worker]:
    """The contestants and their processes, tiny_llm first."""
    first = pool.worker(TINY_LLM, case.model, case.dtype, threads, CONTEXT)
    workers = {TINY_LLM: first}
    if case.kind == "batch":
        workers[BATCH] = first
    elif case.kind == "decode":
        workers[STEP] = first
    for peer in case.peers:
        dtype = "float32" if peer == MLX_LM else case.dtype
        try:
            worker = pool.worker(peer, case.model, dtype, threads, CONTEXT)
            workers |= dict.fromkeys(FORMS.get(peer, (peer,)), worker)
        except Missing as reason:
            row.missing[peer] = str(reason)
    return workers


def _errors(workers: dict[str, Worker], case: Case) -> dict[str, float]:
    """Distances from tiny_llm's logits. The error of tiny_llm is its distance from the nearest peer."""
    logits = {name: np.array(w.call("logits", name=name, prompt=case.prompt)) for name, w in workers.items()}
    errors = {name: _distance(logits[TINY_LLM], other) for name, other in logits.items()}
    peers = [errors[name] for name in errors.keys() & _forms(case)]
    if peers:
        errors[TINY_LLM] = min(peers)
    return errors


def _forms(case: Case) -> set[str]:
    """The names under which the peers of a row are measured."""
    return {form for peer in case.peers for form in FORMS.get(peer, (peer,))}


def _distance(own: Logits, other: Logits) -> float:
    found = float(np.linalg.norm(own - other) / np.linalg.norm(other))
    return found if np.isfinite(found) else float("inf")


def _sample(worker: Worker, name: str, case: Case) -> Callable[[], float]:
    """A function that measures seconds of a prefill, or of a token of an output that continues."""
    if case.kind == "prefill":
        return partial(worker.call, "prefill", name=name, prompt=case.prompt)
    worker.call("start_decoding", name=name, prompt=case.prompt)
    sequences = SEQUENCES if name == BATCH else 1
    return lambda: worker.call("decode", name=name, tokens=case.tokens) / sequences


def _memory_row(case: Case, threads: int) -> Row:
    """Peak memory of a fresh process that loads the model and answers a long prompt."""
    row = Row(case.group, case.name, threads, gate="logits are checked in the other rows")
    weights, peak = footprint(case.model, case.dtype, case.prompt, threads)
    cache = cache_bytes(model_shape(case.model), case.prompt, case.dtype)
    row.verdicts.append(memory_verdict(weights, cache, peak))
    return row


def _startup_row(case: Case, repeats: int) -> Row:
    probe = {"first printed token": startup.first_token_seconds, "import": startup.import_seconds}[case.what]
    probe()  # the first run reads files that the next runs find in memory
    _, samples = interleave({}, repeats=repeats, probes={TINY_LLM: probe})
    command = "import tiny_llm" if case.what == "import" else startup.main_command()[0]
    row = Row(case.group, case.name, cpus(), gate=f"{command} ends without an error")
    row.entries.append(Entry(TINY_LLM, None, "", 0.0, samples[TINY_LLM], 0.0, 0.0))
    row.verdicts.extend(judge(case, row))
    return row


if __name__ == "__main__":
    raise SystemExit(main())
