"""Order, batching and spread of samples, with a fake clock."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tiny_llm_tools.benchmark.clock import MAX_CALLS_PER_SAMPLE, Samples, interleave, time_first, time_once


class FakeClock:
    """Advances during calls only, and records their order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []
        self.slept = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += 1

    def work(self, name: str, seconds: float) -> Callable[[], str]:
        def call() -> str:
            self.order.append(name)
            self.now += seconds
            return name

        return call


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_single_call_gives_its_result_and_its_seconds(clock: FakeClock) -> None:
    assert time_once(clock.work("a", 0.25), clock) == ("a", 0.25)


def test_a_long_first_call_of_a_busy_process_is_the_sample(clock: FakeClock) -> None:
    assert time_first(clock.work("a", 2.0), clock, busy=clock) == ("a", 2.0)
    assert clock.order == ["a"]


def test_a_first_call_on_a_stalled_machine_is_repeated(clock: FakeClock) -> None:
    durations = iter((30.0, 0.5))

    def call() -> None:
        clock.now += next(durations)

    assert time_first(call, clock, busy=lambda: 0.0) == (None, 0.5)


def test_every_second_round_is_reversed(clock: FakeClock) -> None:
    calls = {name: clock.work(name, 1.0) for name in "ab"}
    interleave(calls, repeats=3, clock=clock, sleep=clock.sleep)
    assert "".join(clock.order) == "ab" + "ab" + "ba" + "ab"


def test_there_is_a_pause_before_every_sample(clock: FakeClock) -> None:
    calls = {name: clock.work(name, 1.0) for name in "ab"}
    interleave(calls, repeats=3, probes={"p": lambda: 1.0}, clock=clock, sleep=clock.sleep)
    assert clock.slept == 9


def test_short_calls_are_batched_and_reported_per_call(clock: FakeClock) -> None:
    call_seconds = 2.0**-13  # adds up without rounding
    seconds, _ = interleave({"a": clock.work("a", call_seconds)}, repeats=2, clock=clock, sleep=clock.sleep)
    assert seconds["a"].values == (call_seconds, call_seconds)
    # Two calls to find the batch size, then 20 ms of warm-up and 5 ms of timed calls for each sample.
    assert len(clock.order) == 2 + 2 * (164 + 41)


def test_a_medium_call_is_warmed_up_once_before_each_sample(clock: FakeClock) -> None:
    interleave({"a": clock.work("a", 0.05)}, repeats=2, clock=clock, sleep=clock.sleep)
    assert len(clock.order) == 2 + 2 * (1 + 1)


def test_short_calls_have_their_warm_ups_before_the_first_sample(clock: FakeClock) -> None:
    calls = {"short": clock.work("short", 0.05), "long": clock.work("long", 0.2)}
    interleave(calls, repeats=1, warmups=7, clock=clock, sleep=clock.sleep)
    first_sample = (
        len(clock.order) - 3
    )  # a warm-up of its own and a sample of the short one, and the long one
    assert clock.order[:first_sample].count("short") == 2 + 7
    assert clock.order[:first_sample].count("long") == 1


def test_a_call_that_takes_no_time_still_ends(clock: FakeClock) -> None:
    interleave({"a": clock.work("a", 0.0)}, repeats=1, clock=clock, sleep=clock.sleep)
    assert len(clock.order) == 2 + 2 * MAX_CALLS_PER_SAMPLE


def test_probes_are_read_once_a_round(clock: FakeClock) -> None:
    answers = iter([3.0, 1.0, 2.0])
    _, values = interleave(
        {}, repeats=3, probes={"peak": lambda: next(answers)}, clock=clock, sleep=clock.sleep
    )
    assert values["peak"].values == (3.0, 1.0, 2.0)
    assert values["peak"].median == 2.0


def test_garbage_collection_is_off_while_timing_and_on_again_after_an_error(clock: FakeClock) -> None:
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
    assert Samples((7.0,)).record() == {
        **dict.fromkeys(("median", "low", "high", "p10", "p90"), 7.0),
        "samples": 1,
    }
