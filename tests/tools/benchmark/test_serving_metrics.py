"""The figures of `bench serve`, from answers made by hand."""

from __future__ import annotations

import pytest

from tiny_llm_tools.benchmark.serving.answer import STOPPED, Answer
from tiny_llm_tools.benchmark.serving.load import LoadRun
from tiny_llm_tools.benchmark.serving.metrics import (
    busiest_second,
    failures,
    most_in_flight,
    results,
    values_of,
)
from tiny_llm_tools.benchmark.serving.report import picture, table

VLLM_KEYS = (
    "duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput "
    "output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests"
).split()


def answer(begin: float, *times: float, tokens: int | None = None, failure: str | None = None) -> Answer:
    """An answer to ten tokens, with an event at each of the times."""
    return Answer(10, begin, list(times), times[-1], tokens or len(times), True, failure)


# First token after 1 s, then gaps of 0.5 and 1.5 s; and after 2 s, then one event with two tokens.
FIRST, SECOND = answer(0.0, 1.0, 1.5, 3.0), answer(1.0, 3.0, 4.0, tokens=3)


def test_times_of_an_answer() -> None:
    assert (FIRST.ttft, FIRST.latency, FIRST.tpot) == (1.0, 3.0, 1.0)
    assert (SECOND.ttft, SECOND.latency, SECOND.tpot) == (2.0, 3.0, 0.5)
    assert FIRST.gaps == [0.5, 1.5]
    assert answer(0.0, 1.0).tpot is None


def test_the_record_has_the_keys_of_vllm_and_the_right_figures() -> None:
    record = results(LoadRun([FIRST, SECOND, answer(0.0, 9.0, failure="HTTP 429")], 4.0), {"ttft": 1000.0})
    statistics = [f"{kind}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el")
                  for kind in ("mean", "median", "std", "p99")]  # fmt: skip
    assert list(record) == [*VLLM_KEYS, *statistics]
    assert [record[key] for key in VLLM_KEYS] == [4.0, 2, 1, 20, 6, 0.5, 0.25, 1.5, 6.5, 2.5, 2]
    assert record["mean_ttft_ms"] == record["median_ttft_ms"] == 1500
    assert record["std_ttft_ms"] == 500
    assert record["p99_ttft_ms"] == pytest.approx(1990)
    assert record["mean_tpot_ms"] == 750
    assert record["mean_itl_ms"] == 1000
    assert record["p99_itl_ms"] == pytest.approx(1490)
    assert record["mean_e2el_ms"] == 3000
    assert record["std_e2el_ms"] == 0


def test_percentiles_are_between_neighbours_linearly() -> None:
    answers = [answer(0.0, first) for first in (0.1, 0.2, 0.3, 0.4, 0.5)]
    record = results(LoadRun(answers, 1.0), metrics=["ttft"], percentiles=[50.0, 90.0, 99.9])
    keys = ["mean_ttft_ms", "median_ttft_ms", "std_ttft_ms", "p50_ttft_ms", "p90_ttft_ms", "p99.9_ttft_ms"]
    assert [key for key in record if key not in VLLM_KEYS] == keys
    assert record["p50_ttft_ms"] == pytest.approx(300)
    assert record["p90_ttft_ms"] == pytest.approx(460)
    assert record["p99.9_ttft_ms"] == pytest.approx(499.6)


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft": 1000.0}, 1), ({"ttft": 2000.0}, 2), ({"ttft": 999.0}, 0), ({"tpot": 500.0}, 1),
        ({"e2el": 2999.0}, 0), ({"ttft": 2000.0, "tpot": 999.0}, 1),
    ],
)  # fmt: skip
def test_goodput_counts_requests_within_all_limits(limits: dict[str, float], good: int) -> None:
    assert results(LoadRun([FIRST, SECOND], 4.0), limits)["request_goodput"] == good / 4


def test_a_single_token_has_no_tpot_and_is_good_in_it() -> None:
    record = results(LoadRun([answer(0.0, 1.0)], 1.0), {"tpot": 0.001})
    assert record["request_goodput"] == 1
    assert (record["mean_tpot_ms"], record["p99_itl_ms"]) == (None, None)


def test_without_a_complete_answer_there_are_no_latencies() -> None:
    record = results(LoadRun([Answer(10, 0.0), answer(0.0, 9.0, failure="HTTP 429")], 2.0))
    assert (record["completed"], record["failed"], record["request_goodput"]) == (0, 2, None)
    assert {value for key, value in record.items() if key.endswith("_ms")} == {None}


def test_requests_in_flight_and_tokens_of_the_busiest_second() -> None:
    back_to_back = [answer(0.0, 1.0), answer(1.0, 2.0)]
    assert most_in_flight(back_to_back) == 1
    assert most_in_flight([*back_to_back, answer(0.5, 1.5)]) == 2
    assert busiest_second([answer(5.0, 5.1, 5.9, 6.0, 6.1, 6.2, tokens=10)]) == 6.0
    assert (most_in_flight([]), busiest_second([])) == (0, 0.0)


def test_failures_are_counted_by_reason() -> None:
    failed = [answer(0.0, 1.0, failure=reason) for reason in ("a", "b", "b")]
    assert failures([FIRST, *failed, Answer(10, 0.0)]) == {"b": 2, "a": 1, STOPPED: 1}


def test_gaps_of_all_answers_are_one_set() -> None:
    assert values_of("itl", [FIRST, SECOND]) == [0.5, 1.5, 1.0]


def test_the_table_has_a_column_for_each_rate_and_the_reasons_of_failures() -> None:
    fast, slow = LoadRun([FIRST], 4.0), LoadRun([SECOND, answer(0.0, 1.0, failure="HTTP 429: full")], 8.0)
    records = [
        {"request_rate": rate, **results(run), "errors": failures(run.answers)}
        for rate, run in ((2.5, fast), ("inf", slow))
    ]
    lines = table(records).splitlines()
    assert lines[0].split() == ["request", "rate", "2.5", "inf"]
    assert ["requests", "per", "second", "0.25", "0.12"] in [line.split() for line in lines]
    assert "  p99                                  1000.00 2000.00".split() in [
        line.split() for line in lines
    ]
    assert "good" not in table(records)  # without --goodput
    assert lines[-1] == "1 failed at rate inf: HTTP 429: full"
    assert len({len(line) for line in lines if line.startswith("  ")}) == 1  # aligned


def test_the_picture_has_the_latencies_over_the_throughput() -> None:
    records = [
        {"request_rate": rate, **results(LoadRun(answers, 4.0))}
        for rate, answers in ((1.0, [FIRST]), (2.0, [FIRST, SECOND]), ("inf", []))
    ]
    drawn = picture(records, "m at http://x", "svg")
    assert isinstance(drawn, str)
    assert all(text in drawn for text in ("1/s", "2/s", "median", "p99", "output tokens per second"))
    assert "all at once" not in drawn  # no answer, no point
    assert drawn == picture(records, "m at http://x", "svg")
    assert bytes(picture(records, "m", "png")).startswith(b"\x89PNG")


def test_the_picture_has_the_latencies_that_were_asked_for() -> None:
    records = [
        {"request_rate": rate, **results(LoadRun([FIRST], 4.0), metrics=["itl"])} for rate in (1.0, "inf")
    ]
    drawn = picture(records, "m", "svg")
    assert isinstance(drawn, str)
    assert "time between two events" in drawn
    assert "time to first token" not in drawn
