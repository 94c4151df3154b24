"""What both forms measure: attention or layers of FlashTile's sizes under FlashTile's names."""

from __future__ import annotations

from collections.abc import Iterable

from benches.cases.flashtile import Case
from benches.contestants import flashtile as contestants
from benches.harness.contestant import Case as Measurable
from benches.harness.contestant import Operation
from benches.harness.measure import measure
from benches.harness.row import Row
from benches.names import GQA, MX_FAST, NAIVE, TINY_LLM, V1
from tiny_llm.runtime.extension import load_extension

NAMES = {"naive": NAIVE, "flash_v1": V1, "flash_v2": TINY_LLM, "gqa": GQA, "sdpa": MX_FAST}
DENSE = {name for name, contestant in NAMES.items() if contestant in contestants.DENSE}


def measure_case(case: Case, names: Iterable[str], warmups: int, repeats: int) -> Row:
    """The row of a case, in which every result was checked before it was timed."""
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)
    found = [contestants.contestant(case, inputs, NAMES[name]) for name in names]
    operation = Operation(case.dtype, case.flops, 0, gate, found)
    work = Measurable(case.group, case.name, lambda _: operation)
    row, _ = measure(work, load_extension().cpu_threads()[0], repeats, warmups=warmups)
    return row
