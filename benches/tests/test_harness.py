"""The clock: order, batching and spread, on a clock that the tests turn by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tiny_llm.benchmark.harness import MOST_CALLS_PER_SAMPLE, Samples, interleave, time_first, time_once


class HandClock:
    """Stands still until a call advances it, and keeps a diary of the calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.diary: list[str] = []
        self.slept = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += 1

    def work(self, name: str, seconds: float) -> Callable[[], str]:
        def call() -> str:
            self.diary.append(name)
            self.now += seconds
            return name

        return call


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_a_single_call_gives_its_result_and_its_seconds(clock: HandClock) -> None:
    assert time_once(clock.work("a", 0.25), clock) == ("a", 0.25)


def test_a_long_first_call_counts_if_the_process_was_busy(clock: HandClock) -> None:
    assert time_first(clock.work("a", 2.0), clock, busy=clock) == ("a", 2.0)
    assert clock.diary == ["a"]


def test_a_first_call_that_was_held_up_is_made_again(clock: HandClock) -> None:
    durations = iter((30.0, 0.5))

    def call() -> None:
        clock.now += next(durations)

    assert time_first(call, clock, busy=lambda: 0.0) == (None, 0.5)


def test_rounds_go_forwards_then_backwards_after_one_call_each(clock: HandClock) -> None:
    calls = {name: clock.work(name, 1.0) for name in "ab"}
    interleave(calls, repeats=3, clock=clock, sleep=clock.sleep)
    assert "".join(clock.diary) == "ab" + "ab" + "ba" + "ab"


def test_every_sample_waits_for_the_spinning_threads_of_the_one_before(clock: HandClock) -> None:
    calls = {name: clock.work(name, 1.0) for name in "ab"}
    interleave(calls, repeats=3, probes={"p": lambda: 1.0}, clock=clock, sleep=clock.sleep)
    assert clock.slept == 9


def test_short_calls_are_batched_and_reported_per_call(clock: HandClock) -> None:
    call_seconds = 2.0**-13  # adds up without rounding
    seconds, _ = interleave({"a": clock.work("a", call_seconds)}, repeats=2, clock=clock, sleep=clock.sleep)
    assert seconds["a"].values == (call_seconds, call_seconds)
    # Two calls to find the batch size, then 20 ms of warm-up and 5 ms of timed calls for each sample.
    assert len(clock.diary) == 2 + 2 * (164 + 41)


def test_a_medium_call_is_warmed_up_once_before_each_sample(clock: HandClock) -> None:
    interleave({"a": clock.work("a", 0.05)}, repeats=2, clock=clock, sleep=clock.sleep)
    assert len(clock.diary) == 2 + 2 * (1 + 1)


def test_a_call_that_takes_no_time_still_ends(clock: HandClock) -> None:
    interleave({"a": clock.work("a", 0.0)}, repeats=1, clock=clock, sleep=clock.sleep)
    assert len(clock.diary) == 2 + 2 * MOST_CALLS_PER_SAMPLE


def test_probes_are_read_once_a_round(clock: HandClock) -> None:
    answers = iter([3.0, 1.0, 2.0])
    _, values = interleave(
        {}, repeats=3, probes={"peak": lambda: next(answers)}, clock=clock, sleep=clock.sleep
    )
    assert values["peak"].values == (3.0, 1.0, 2.0)
    assert values["peak"].median == 2.0


def test_garbage_collection_is_off_while_timing_and_on_again_after_an_error(clock: HandClock) -> None:
    seen: list[bool] = []

    def fail() -> float:
        seen.append(gc.isenabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interleave({}, repeats=1, probes={"p": fail}, clock=clock, sleep=clock.sleep)
    assert seen == [False]
    assert gc.isenabled()


def test_the_median_ignores_an_outlier_and_the_quartiles_show_the_spread() -> None:
    samples = Samples((1.0, 2.0, 3.0, 4.0, 500.0))
    assert (samples.low, samples.median, samples.high) == (2.0, 3.0, 4.0)
    assert Samples((7.0,)).record() == {"median": 7.0, "low": 7.0, "high": 7.0, "samples": 1}
