"""`bench crossover` without its clock: rows, contestants and the table."""

from __future__ import annotations

from xml.etree import ElementTree

import mlx.core as mx
import pytest

from benches import crossover
from benches.cases.packed import Prompts
from benches.cases.packed import crossover as cases
from benches.harness import machine
from benches.names import MX_FAST, NAIVE_TILE, STANDARD, TINY_LLM
from benches.report.crossover import stays_ahead, sweep
from benches.suite import Record


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def row(length: int, naive: float | None, flash: float | None, *, fits: bool = True) -> Record:
    times = {TINY_LLM: flash, MX_FAST: 1.0, NAIVE_TILE if fits else STANDARD: naive}
    timed = [{"name": name, "seconds": None if t is None else {"median": t}} for name, t in times.items()]
    return {"length": length, "threads": 1, "contestants": timed, "missing": {} if fits else {NAIVE_TILE: ""}}


def test_the_sweep_has_its_twelve_lengths() -> None:
    rows = list(cases("sweep"))
    assert [each.length for each in rows] == [16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 512, 1024]
    assert {(each.count, each.heads, each.kv_heads, each.D, each.samples) for each in rows} == {
        (2, 32, 8, 128, 50)
    }


@pytest.mark.parametrize(
    ("naive", "flash", "expected"),
    [
        ((1, 1, 1), (2, 0.5, 0.5), 32),
        ((1, 1, 1), (0.5, 2, 0.5), 64),
        ((1, 1, 1), (0.5, 0.5, 0.5), 16),
        ((1, 1, 1), (0.5, 0.5, 1), None),
        ((1, 1, 1), (0.5, None, 0.5), 64),
    ],
)
def test_flash_stays_ahead_from_the_first_length_without_a_loss_after_it(naive, flash, expected) -> None:
    rows = [row(*each) for each in zip((16, 32, 64), naive, flash, strict=True)]
    assert stays_ahead(rows) == expected


def test_the_table_marks_standard_attention_and_says_none() -> None:
    rows = [row(16, 1e-3, 2e-3), row(128, 3e-3, 1e-3, fits=False), row(256, 1e-3, 4e-3, fits=False)]
    text = sweep({"threads": [1], "rows": rows})
    assert "| Seq Len | Naive (ms) | Flash (ms) | Winner | Speedup | mx.fast (ms) |" in text
    assert "| 16 | 1.00 | 2.00 | naive | 2.00x | 1000 |" in text
    assert "| 128 | 3.00* | 1.00 | flash | 3.00x | 1000 |" in text
    assert "First length from which flash stays ahead: none." in text


def test_a_naive_contestant_takes_part_at_every_length() -> None:
    sizes = {"heads": 2, "kv_heads": 1, "D": 128}
    (short,) = crossover.rows_of(Prompts("sweep", 2, 8, 1, **sizes), [1])
    (long,) = crossover.rows_of(Prompts("sweep", 2, 65, 1, **sizes), [1])
    assert [entry.name for entry in short.entries] == [TINY_LLM, MX_FAST, NAIVE_TILE]
    assert [entry.name for entry in long.entries] == [TINY_LLM, MX_FAST, STANDARD]
    assert all(entry.seconds for entry in (*short.entries, *long.entries))
    rows = [short.record(), long.record()]
    run = {"benchmark": "crossover", "groups": {}, "threads": [1], "repeats": None, "rows": rows}
    text = crossover.page({**machine.describe(), **run})
    assert "\n| 65 | " in text
    drawn = [
        each.text for each in ElementTree.fromstring(crossover.picture({**machine.describe(), **run})).iter()
    ]
    assert {"8", "65", TINY_LLM, MX_FAST, NAIVE_TILE, STANDARD, "2 prompts, float16, 2 heads, causal"} <= set(
        drawn
    )
    assert "| 2 x 65 tokens, 2 heads | does not fit |  |  | (2, 2, 3) | 12 | 1 |" in text
