"""`bench packed` without its clock: rows, gates, contestants, targets and reports."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest

from benches import packed
from benches.cases.pages import Paged
from benches.cases.varlen import Varlen
from benches.contestants import packed as contestants
from benches.contestants import pages, varlen
from benches.harness import machine
from benches.harness.measure import check
from benches.harness.row import Entry, Row
from benches.names import ALONE, DENSE, PADDED, PADDED_LENGTHS, TINY_LLM
from benches.report.pages import machine_page
from benches.targets import packed as targets
from tiny_llm_tools.benchmark.clock import Samples

VARLEN = Varlen((3, 40, 17), "float32", heads=4, kv_heads=2, D=32)
DECODE = Paged((5, 50, 31), 1, 8, "PHSE", heads=4, kv_heads=2, D=32)
PREFILL = replace(DECODE, contexts=(45, 20), queries=13, layout="PSHE")


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def test_the_rows_have_every_length_type_page_and_layout() -> None:
    prompts, in_pages = (list(packed.SUITE.cases(group)) for group in packed.GROUPS)
    names = [case.name for case in (*prompts, *in_pages)]
    assert len(set(names)) == len(names) == 6 + 24
    assert {(len(case.lengths), min(case.lengths), max(case.lengths)) for case in prompts} == {
        (4, 1024, 1024), (8, 60, 1600), (4, 60, 4096),
    }  # fmt: skip
    assert {case.dtype for case in prompts} == {"float32", "bfloat16"}
    assert {(case.page, case.layout) for case in in_pages} == {
        (page, layout) for page in (16, 64, 128) for layout in ("PHSE", "PSHE")
    }
    decoding = [case for case in in_pages if case.queries == 1]
    assert {(case.heads, case.kv_heads, case.D) for case in decoding} == {(14, 2, 64), (28, 4, 128)}
    assert {(len(c.contexts), min(c.contexts), max(c.contexts)) for c in decoding} == {(8, 100, 4000)}
    assert {c.contexts for c in in_pages if c.queries == 128} == {(2176,)}
    assert sum(map(packed.is_quick, prompts)) == 4


def test_work_counts_the_visible_keys() -> None:
    pairs = sum(row + 1 for length in VARLEN.lengths for row in range(length))
    assert VARLEN.flops == 4 * 4 * 32 * pairs
    assert VARLEN.padded_flops == 4 * 4 * 32 * 3 * sum(range(41))
    assert PREFILL.flops == 4 * 4 * 32 * (sum(range(33, 46)) + sum(range(8, 21)))
    assert DECODE.flops == 4 * 4 * 32 * 86


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_form_of_the_prompts_passes_the_gate(dtype) -> None:
    case = replace(VARLEN, dtype=dtype)
    inputs = contestants.Inputs(case)
    gate, rectangle = contestants.gate(case, inputs), varlen.Rectangle(case, inputs)
    assert len(gate.rows) == case.tokens * case.heads
    found = [contestants.tiny_llm(case, inputs, 1), varlen.each_alone(case, inputs, 1)]
    found += [varlen.padded(rectangle, 1), varlen.padded_with_lengths(rectangle, 1)]
    for contestant in found:
        assert check(contestant, gate).passed, contestant.name


def test_other_boundaries_of_the_prompts_do_not_pass() -> None:
    inputs = contestants.Inputs(VARLEN)
    gate = contestants.gate(VARLEN, inputs)
    moved = replace(VARLEN, lengths=(4, 39, 17))
    assert not check(contestants.tiny_llm(moved, inputs, 1), gate).passed
    assert not check(varlen.each_alone(moved, inputs, 1), gate).passed


@pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
@pytest.mark.parametrize("case", [DECODE, PREFILL], ids=["decode", "prefill"])
def test_pages_and_dense_keys_pass_the_gate(case, layout) -> None:
    case = replace(case, layout=layout)
    inputs = pages.Inputs(case)
    gate = pages.gate(case, inputs)
    assert len(gate.rows) == len(case.contexts) * case.queries * case.heads
    order = (case.kv_heads, case.page) if layout == "PHSE" else (case.page, case.kv_heads)
    assert inputs.pages[0].shape[1:] == (*order, case.D)
    for contestant in (pages.tiny_llm(case, inputs, 1), pages.dense(case, inputs, 1)):
        assert check(contestant, gate).passed, contestant.name


def test_pages_in_another_order_do_not_pass() -> None:
    case = replace(PREFILL, contexts=(48, 48))
    inputs = pages.Inputs(case)
    gate = pages.gate(case, inputs)
    inputs.table = inputs.table[::-1]
    assert not check(pages.tiny_llm(case, inputs, 1), gate).passed


def test_rows_have_their_contestants_and_targets_for_two_threads() -> None:
    rows = [row for case in (VARLEN, DECODE) for row in packed.rows_of(case, [1, 2], repeats=1)]
    alone = [TINY_LLM, ALONE, PADDED, PADDED_LENGTHS]
    assert [[entry.name for entry in row.entries] for row in rows] == [alone] * 2 + [[TINY_LLM, DENSE]] * 2
    assert all(entry.seconds for row in rows for entry in row.entries)
    assert [[verdict.what for verdict in row.verdicts] for row in rows] == [
        [], ["time against each alone", f"speed over {PADDED}"], [], ["time against dense"],
    ]  # fmt: skip
    run = {"benchmark": "packed", "groups": packed.GROUPS, "threads": [1, 2], "repeats": None}
    record = {**machine.describe(), **run, "rows": [row.record() for row in rows]}
    text = packed.page(record)
    assert "| over each alone | over padded | over padded, lengths | " in text
    assert f"| {VARLEN.name} | 2 | {ALONE} " in text
    assert f"| {DECODE.name} | 2 | {DENSE} " in text
    assert text.splitlines()[-1].startswith("Targets: ")
    title = "Packed sequences and pages against dense"
    assert f"## {title}\n\n![{title}](m-packed.svg)\n\n{text}" in machine_page("m", {"packed": record})


def judged(case: Varlen | Paged, **times: float) -> list[bool | None]:
    names = {"own": TINY_LLM, "alone": ALONE, "padded": PADDED, "dense": DENSE}
    entries = [Entry(names[name], None, "", 0.0, Samples((time,)), 1.0, 0.0) for name, time in times.items()]
    return [verdict.met for verdict in targets.judge(case, Row(case.group, "row", 2, entries=entries))]


def test_the_limits_of_the_targets() -> None:
    assert judged(VARLEN, own=1.0, alone=0.96, padded=2.01) == [True, True]
    assert judged(VARLEN, own=1.0, alone=0.95, padded=1.99) == [False, False]
    assert judged(VARLEN, own=1.0, padded=2.01) == [None, True]
    assert judged(DECODE, own=1.09, dense=1.0) == [True]
    assert judged(DECODE, own=1.11, dense=1.0) == [False]


def test_equal_lengths_have_no_target_over_padding() -> None:
    equal = replace(VARLEN, lengths=(20, 20))
    assert judged(equal, own=1.0, alone=1.0, padded=1.0) == [True]
