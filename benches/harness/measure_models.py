"""From a case to its rows: the processes, the gate, the clock, the ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benches.cases.models import CONTEXT, Case, cache_bytes, work
from benches.contestants import startup as start
from benches.contestants.attention import extension
from benches.contestants.footprint import footprint
from benches.contestants.names import BATCH, LLAMA_CPP, MLX_LM, OURS, SEQUENCES, STEP, Missing
from benches.contestants.pool import Hall
from benches.contestants.shared_weights import sizes
from benches.contestants.worker import Worker
from benches.harness import ceilings
from benches.harness.machine import cpus, others_running
from benches.harness.measured import Measured
from benches.harness.row import Entry
from benches.targets.models import judge, memory_verdict
from tiny_llm.benchmark.harness import interleave

# Distance of two vectors of scores, by the length of the second. llama.cpp rounds activations to 8 bits, ours
# are bfloat16: 0.02 is seen. A wrong order of anything gives more than 1.
TOLERANCE = 0.08
SLOW_REPEATS = 3  # of mlx-lm, which takes seconds for a token
Scores = NDArray[np.float64]
Probes = dict[str, Callable[[], float]]


def measure(hall: Hall, case: Case, threads: list[int], repeats: int) -> Iterator[Measured]:
    """One row for every thread count, judged."""
    if case.kind == "start":
        yield _started(case, repeats)
        return
    for count in threads[-1:] if case.kind == "memory" else threads:
        hall.clear(case.model, count)
        row = _memory(case, count) if case.kind == "memory" else _timed(hall, case, count, repeats)
        row.verdicts.extend(judge(case, row))
        yield row


def _timed(hall: Hall, case: Case, threads: int, repeats: int) -> Measured:
    row = Measured(case.group, case.name, threads)
    workers = _enter(hall, case, threads, row)
    errors = _errors(workers, case)
    row.gate = f"scores behind the prompt, at most {TOLERANCE:g} of their length apart"
    if not any(rival in errors for rival in (LLAMA_CPP, MLX_LM)):
        row.gate = "not checked here: nobody else takes part"
    row.tokens = case.prompt if case.kind == "prefill" else 1
    row.flops, row.bytes = work(case, workers[OURS].ask("weights"))

    right = [name for name in workers if errors[name] <= TOLERANCE]
    probes: Probes = {name: _sample(workers[name], name, case) for name in right}
    isa = extension().cpu_isa()
    limits: Probes = {
        ceilings.peak_name(isa): ceilings.peak(isa, case.dtype, threads),
        ceilings.BANDWIDTH: ceilings.bandwidth(_bytes_of_step(case, row), threads),
        ceilings.OTHERS: others_running,
    }
    turns = min(repeats, SLOW_REPEATS) if MLX_LM in case.rivals else repeats
    _, samples = interleave({}, repeats=turns, probes={**probes, **limits})
    row.ceilings = {name: samples.pop(name) for name in limits}
    floor = max(
        row.flops / row.ceilings[ceilings.peak_name(isa)].median,
        row.bytes / row.ceilings[ceilings.BANDWIDTH].median,
    )
    for name in workers:
        row.entries.append(Entry(name, None, "", errors[name], samples.get(name), row.flops, floor))
    return row


def _bytes_of_step(case: Case, row: Measured) -> int:
    """Bytes that are read before any of them is read again: those of all sequences."""
    return row.bytes * (SEQUENCES if case.kind == "batch" else 1)


def _enter(hall: Hall, case: Case, threads: int, row: Measured) -> dict[str, Worker]:
    """Everybody who takes part and the process that runs it; ours first."""
    ours = hall.worker(OURS, case.model, case.dtype, threads, CONTEXT)
    workers = {OURS: ours}
    if case.kind == "batch":
        workers[BATCH] = ours
    elif case.kind == "decode":
        workers[STEP] = ours
    for rival in case.rivals:
        dtype = "float32" if rival == MLX_LM else case.dtype
        try:
            workers[rival] = hall.worker(rival, case.model, dtype, threads, CONTEXT)
        except Missing as reason:
            row.missing[rival] = str(reason)
    return workers


def _errors(workers: dict[str, Worker], case: Case) -> dict[str, float]:
    """How far everybody's scores are from ours; ours are as wrong as the best rival finds them."""
    scores = {name: np.array(w.ask("scores", who=name, prompt=case.prompt)) for name, w in workers.items()}
    ours = scores[OURS]
    errors = {name: _distance(ours, other) for name, other in scores.items()}
    rivals = [errors[name] for name in (LLAMA_CPP, MLX_LM) if name in errors]
    if rivals:
        errors[OURS] = min(rivals)
    return errors


def _distance(ours: Scores, other: Scores) -> float:
    found = float(np.linalg.norm(ours - other) / np.linalg.norm(other))
    return found if np.isfinite(found) else float("inf")


def _sample(worker: Worker, name: str, case: Case) -> Callable[[], float]:
    """What gives one sample: seconds of a prompt, or of each token of an answer that goes on and on."""
    if case.kind == "prefill":
        return partial(worker.ask, "prefill", who=name, prompt=case.prompt)
    worker.ask("read", who=name, prompt=case.prompt)
    sequences = SEQUENCES if name == BATCH else 1
    return lambda: worker.ask("decode", who=name, tokens=case.tokens) / sequences


def _memory(case: Case, threads: int) -> Measured:
    """The high-water mark of a fresh process that loads the model and answers a long prompt."""
    row = Measured(case.group, case.name, threads, gate="the scores are checked in the other rows")
    weights, peak = footprint(case.model, case.dtype, case.prompt, threads)
    cache = cache_bytes(sizes(case.model), case.prompt, case.dtype)
    row.verdicts.append(memory_verdict(weights, cache, peak))
    return row


def _started(case: Case, repeats: int) -> Measured:
    probe = {"first printed token": start.first_token_seconds, "import": start.import_seconds}[case.what]
    probe()  # the first run reads files that the second finds in memory
    _, samples = interleave({}, repeats=repeats, probes={OURS: probe})
    command = "import tiny_llm" if case.what == "import" else start.main_command()[0]
    row = Measured(case.group, f"{case.what}, {command}", cpus(), gate="it ends without an error")
    row.entries.append(Entry(OURS, None, "", 0.0, samples[OURS], 0.0, 0.0))
    row.verdicts.extend(judge(case, row))
    return row
