"""From a case to its rows: who takes part, the gate, the clock, the ceilings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benches.cases.arrays import Inputs
from benches.cases.attention import Case
from benches.contestants import attention as contestants
from benches.contestants import attention_memory as memory
from benches.contestants.attention import GROUPED, MX_FAST, OURS, TORCH, Contestant, Missing
from benches.harness import ceilings, machine
from benches.harness.gate import Gate
from benches.harness.row import Entry, Row
from benches.targets.attention import OURS_WITHOUT_WINDOW
from tiny_llm.benchmark.harness import ONCE_SECONDS, Samples, interleave, time_first


@dataclass(frozen=True, slots=True)
class Outcome:
    """A contestant's gate run: is it right, and how long did that call take?"""

    contestant: Contestant
    error: float
    passed: bool
    seconds: float

    @property
    def once(self) -> bool:
        return self.seconds > ONCE_SECONDS


def measure(case: Case, isas: list[str], threads: list[int], repeats: int) -> list[Row]:
    """One row for every thread count."""
    if case.group == "avx2":
        if "avx2" not in isas:
            return [Row(case, threads[-1], missing={OURS: "no AVX2, or it was not asked for"})]
        isas = ["avx2"]
    if case.group in ("window", "decode", "memory"):
        isas = isas[:1]  # rows about a path, not about an instruction set
    if case.group == "memory":
        return [_measure_memory(case, isas[0], threads[-1])]

    inputs = Inputs(case)
    gates: dict[Case, Gate] = {}
    slow: dict[str, Outcome] = {}  # single-threaded and run once: the same for every thread count
    rows = []
    for count in threads:
        row = Row(case, count)
        outcomes = []
        for contestant in _field(case, inputs, isas, count, row.missing):
            if contestant.case not in gates:
                gates[contestant.case] = Gate(contestant.case, inputs)
            outcomes.append(slow.get(contestant.label) or _gate_run(contestant, gates[contestant.case]))
        row.gate = gates[case].method
        if case.window is not None:
            row.tiles = _tiles(outcomes[0].contestant)
        slow |= {o.contestant.label: o for o in outcomes if o.once and not o.contestant.uses_threads}
        _time_row(row, outcomes, repeats)
        rows.append(row)
    return rows


def _field(
    case: Case, inputs: Inputs, isas: list[str], threads: int, missing: dict[str, str]
) -> list[Contestant]:
    """Everybody who takes part in a row; ours first, the best instruction set leading."""
    field = [contestants.ours(case, inputs, isa, threads) for isa in isas]
    if case.window is not None:
        whole = replace(case, window=None, causal=False)
        return [*field, contestants.ours(whole, inputs, isas[0], threads, OURS_WITHOUT_WINDOW)]
    if case.group == "avx2":
        return field  # the peers stand beside the same shapes in the f32 rows
    peers: dict[str, Callable[[], Contestant]] = {
        MX_FAST: lambda: contestants.mx_fast(case, inputs),
        GROUPED: lambda: contestants.grouped(case, inputs),
        TORCH: lambda: contestants.pytorch(case, inputs, threads),
    }
    for name, enter in peers.items():
        try:
            field.append(enter())
        except Missing as reason:
            missing[name] = str(reason)
    return field


def _gate_run(contestant: Contestant, gate: Gate) -> Outcome:
    out, seconds = time_first(contestant.call)
    error = gate.error(contestant.result(out))
    return Outcome(contestant, error, gate.passes(error), seconds)


def _time_row(row: Row, outcomes: list[Outcome], repeats: int) -> None:
    """Times everybody who passed, with the ceilings in the same rounds."""
    case, threads = row.case, row.threads
    subject = outcomes[0].contestant  # the field is in this order; the targets speak about it
    isas = dict.fromkeys(_yardstick(o.contestant, subject) for o in outcomes)
    probes = {ceilings.peak_name(isa): ceilings.peak(isa, case.dtype, threads) for isa in isas}
    calls = {
        o.contestant.label: o.contestant.call
        for o in outcomes
        if o.passed and not (o.once and _is_baseline(o.contestant, subject))
    }
    probes[ceilings.OTHERS] = machine.others_running
    if case.group == "decode":
        probes[ceilings.BANDWIDTH] = ceilings.bandwidth(case.kv_bytes, threads)
        calls[ceilings.EMPTY_CALL] = ceilings.empty_call(case, _yardstick(subject, subject), threads)
    seconds, row.ceilings = interleave(calls, repeats=repeats, probes=probes)
    if ceilings.EMPTY_CALL in seconds:
        row.ceilings[ceilings.EMPTY_CALL] = seconds.pop(ceilings.EMPTY_CALL)

    for outcome in outcomes:
        who = outcome.contestant
        timed = seconds.get(who.label) or Samples((outcome.seconds,))
        floor = who.case.flops / row.ceilings[ceilings.peak_name(_yardstick(who, subject))].median
        if case.group == "decode":
            floor = max(floor, case.kv_bytes / row.ceilings[ceilings.BANDWIDTH].median)
        entry = Entry(
            name=who.name,
            isa=who.isa,
            variant=who.variant,
            error=outcome.error,
            seconds=timed if outcome.passed else None,
            flops=who.case.flops,
            floor=floor,
        )
        row.entries.append(entry)


def _yardstick(contestant: Contestant, subject: Contestant) -> str:
    """The instruction set whose peak a contestant is held against: its own, else the best of ours."""
    isa = contestant.isa or subject.isa
    assert isa is not None
    return isa


def _is_baseline(contestant: Contestant, subject: Contestant) -> bool:
    """Whether a target can do with a single sample: not ours at its best, nor PyTorch."""
    return contestant.label != subject.label and contestant.name not in (TORCH, OURS_WITHOUT_WINDOW)


def _tiles(windowed: Contestant) -> tuple[int, int]:
    windowed.call()
    run = contestants.extension().last_run()
    return int(run["tiles_visited"]), int(run["tiles_total"])


def _measure_memory(case: Case, isa: str, threads: int) -> Row:
    return Row(case, threads, extra_bytes=memory.extra_bytes(case, isa, threads))
