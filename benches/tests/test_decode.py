"""`bench decode` without its clock: rows, pages, gate, contestants and reports."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from benches import decode
from benches.cases.decode import GROUPS, Case, cases, is_quick
from benches.contestants import decode as contestants
from benches.harness import machine
from benches.harness.contestant import Contestant
from benches.harness.measure import check
from benches.harness.row import Entry, Row
from benches.names import DENSE, GATHERED, MX_FAST, TINY_LLM
from tiny_llm_tools.benchmark.clock import Samples

SMALL = Case("a", 3, 50, 2, heads=4, page=8, ragged=True, kv_heads=2, D=32)


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def every(case: Case, inputs: contestants.Inputs) -> list[Contestant]:
    own = [contestants.tiny_llm(case, inputs, 1), contestants.dense(case, inputs, 1)]
    return [*own, contestants.mx_fast(case, inputs), contestants.gathered(case, inputs)]


def test_the_rows_are_those_of_both_benchmarks_with_equal_and_ragged_lengths() -> None:
    for group, sizes in (("a", 4), ("b", 9)):
        rows = list(cases(group))
        assert len({row.name for row in rows}) == len(rows)
        assert len({(row.batch, row.length) for row in rows}) == sizes
        assert any(map(is_quick, rows))
        assert {row.batch for row in rows if row.ragged} == {row.batch for row in rows} - {1}
    largest = next(row for row in cases("b") if (row.batch, row.length) == (32, 2048))
    assert largest.kv_bytes == 268_435_456
    assert SMALL.lengths == [50, 31, 12]


def test_pages_are_shuffled_and_hold_every_token_once() -> None:
    inputs = contestants.Inputs(SMALL)
    table = np.array(inputs.table)
    used = table[table >= 0]
    assert sorted(used) == list(range(len(used)))
    assert list(used) != sorted(used)
    for sequence, length in enumerate(SMALL.lengths):
        for t in (0, length // 2, length - 1):
            page = table[sequence, t // SMALL.page]
            for pool, dense in zip(inputs.pages, inputs.dense, strict=True):
                assert mx.array_equal(pool[int(page), t % SMALL.page], dense[sequence, :, t])


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_contestant_passes_the_gate(dtype, ragged) -> None:
    case = replace(SMALL, dtype=dtype, ragged=ragged)
    inputs = contestants.Inputs(case)
    gate = contestants.gate(case, inputs)
    assert len(gate.rows) == case.batch * case.heads
    for contestant in every(case, inputs):
        assert check(contestant, gate).passed, contestant.name


def test_a_table_in_another_order_does_not_pass() -> None:
    inputs = contestants.Inputs(SMALL)
    gate = contestants.gate(SMALL, inputs)
    inputs.table = inputs.table[::-1]
    assert not check(contestants.gathered(SMALL, inputs), gate).passed


def test_a_row_has_its_contestants_and_its_target_for_two_threads() -> None:
    one, two = decode.rows_of(SMALL, [1, 2], repeats=1)
    assert [entry.name for entry in one.entries] == [TINY_LLM, DENSE, MX_FAST, GATHERED]
    assert all(entry.seconds for entry in one.entries)
    assert one.bytes == SMALL.kv_bytes
    assert not one.verdicts
    assert [verdict.what for verdict in two.verdicts] == ["time against dense"]
    run = {"benchmark": "decode", "groups": dict(GROUPS), "threads": [1, 2], "repeats": 1}
    text = decode.page({**machine.describe(), **run, "rows": [one.record(), two.record()]})
    assert f"| {SMALL.name} | 2 | {GATHERED} | " in text
    assert text.splitlines()[-1].startswith("Targets: ")


@pytest.mark.parametrize(("seconds", "met"), [(1.09, True), (1.11, False)])
def test_pages_may_cost_a_tenth(seconds, met) -> None:
    times = {TINY_LLM: seconds, DENSE: 1.0}
    entries = [Entry(name, None, "", 0.0, Samples((time,)), 1.0, 0.0) for name, time in times.items()]
    assert decode.against_dense(Row("a", "row", 2, entries=entries)).met is met
