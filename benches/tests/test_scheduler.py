"""`bench scheduler`: exact counts, and better ones than nano-vllm's at each number of pages."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import pytest

from benches.cases.scheduler import PAGES, Counts, SteadyState, WrongCounts, check_lengths, requests, run
from benches.report.pages import SCHEDULER
from benches.report.scheduler import nano_vllm_table, scheduler_page, watermarks_table
from benches.report.tables import Record
from benches.scheduler import main
from benches.targets.scheduler import NANO_VLLM, PLAIN, misses

NAMES = ("nano-vllm", "watermarks", "time")


@pytest.fixture(scope="module")
def recorded() -> Record:
    return json.loads(SCHEDULER.read_text())  # type: ignore[no-any-return]


def test_the_workload_is_that_of_nano_vllm() -> None:
    states = requests()
    assert len(states) == 256
    assert sum(len(state.prompt_ids) for state in states) == 142_827
    assert sum(state.max_tokens for state in states) == 133_966
    assert max(len(state.prompt_ids) + state.max_tokens for state in states) == 2_011
    assert max(state.max_tokens for state in states) == 1_024


@pytest.mark.parametrize("pages", PAGES)
def test_all_counts_are_better_than_nano_vllms_and_as_recorded(pages: int, recorded: Record) -> None:
    """With 2000 pages neither preempts, and no scheduler computes less than the prompts."""
    ours, theirs = run(pages), NANO_VLLM[pages]
    assert ours.output_tokens == 133_966
    assert ours.prompt_tokens == 142_827
    assert ours.steps <= theirs.steps
    if pages < 2000:
        assert ours.prefill_tokens < theirs.prefill_tokens
        assert ours.preemptions < theirs.preemptions
    else:
        assert (ours.prefill_tokens, ours.preemptions) == (142_827, 0)
    rows = [row for row in recorded["rows"] if (row["pages"], row["watermark"]) == (pages, "1/4")]
    assert rows == [{"pages": pages, "watermark": "1/4", **asdict(ours), "misses": []}], (
        f"run `pdm bench scheduler --json benches/results/{SCHEDULER.name}`, "
        "then `python -m benches.report.pages`"
    )


def test_pages_that_are_found_again_save_prefill_without_a_watermark() -> None:
    counts = run(150, Fraction(0))
    steps, prefill_tokens, preemptions = PLAIN[150][0]
    assert (counts.steps, counts.preemptions) == (steps, preemptions)
    assert counts.prefill_tokens < prefill_tokens


def test_every_column_in_which_nano_vllm_is_better_is_a_miss() -> None:
    least = Counts(4_444, 142_827, 0, 0, 142_827, 133_966, 30.0)
    assert misses(150, least) == []
    assert misses(150, replace(least, steps=4_445)) == ["steps"]
    assert misses(150, replace(least, prefill_tokens=208_571)) == ["prefill tokens"]
    assert misses(150, replace(least, prefill_tokens=208_570, preemptions=182)) == ["preemptions"]
    assert misses(2000, replace(least, steps=1_032, prefill_tokens=142_828, preemptions=1)) == [
        "prefill tokens",
        "preemptions",
    ]


def test_an_answer_of_a_wrong_length_is_an_error() -> None:
    with pytest.raises(WrongCounts, match=r"by request: \{'0': 0,"):
        check_lengths(requests())


def test_the_steady_state_keeps_its_number_of_requests() -> None:
    steady = SteadyState(8)
    for _ in range(600):
        steady.step()
        scheduler = steady.scheduler
        assert len(scheduler.running) + len(scheduler.waiting) == 8
    assert scheduler.counters.preemptions == 0
    assert scheduler.counters.prefix_hits == 0


def test_a_run_writes_its_record_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "record.json", tmp_path / "tables.md"]
    options = ["--quick", "--pages", "2000", "--repeats", "1"]
    assert main([*options, "--json", str(files[0]), "--table", str(files[1])]) == 0
    record = json.loads(files[0].read_text())
    assert [row["running"] for row in record["times"]] == [8, 64]
    assert all(row["seconds"]["median"] > 0 for row in record["times"])
    printed = capsys.readouterr().out
    assert files[1].read_text() == printed
    assert "| 2000 | nano-vllm | 1,032 | 142,827 | +0.0% | 0 | 130.7 |" in printed


def test_the_page_has_the_tables_of_a_record(recorded: Record) -> None:
    text = "".join(f"<!-- table: {name} -->\nold\n<!-- end -->\n" for name in NAMES)
    changed = json.loads(json.dumps(recorded))
    row = next(row for row in changed["rows"] if (row["pages"], row["watermark"]) == (150, "1/4"))
    row |= {"steps": 9_999, "misses": ["steps"]}
    page = scheduler_page(text, changed)
    assert "old" not in page
    assert "| 150 | nano-vllm | 4,444 | 208,571 | +46.0% | 182 | 31.5 |" in page
    assert "| missed: steps |" in nano_vllm_table(changed)
    assert "9,999 / " in watermarks_table(changed)
    assert "4,390 / 148,382 / 10" in page  # of the plain scheduler
    with pytest.raises(ValueError, match="scheduler_page: text: got 0 places for the table 'nano-vllm'"):
        scheduler_page("", changed)
