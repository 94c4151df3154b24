"""Memory and time of a block: real peaks, and nothing that was not evaluated."""

from __future__ import annotations

import time
import warnings

import mlx.core as mx
import pytest

from tiny_llm import ArgumentError
from tiny_llm_tools.profile import KernelTimer, MemoryProfiler, profile_attention_function, timer

MB = 1_000_000
pytestmark = pytest.mark.usefixtures("on_the_cpu")


@pytest.fixture(autouse=True)
def nothing_else_is_freed() -> None:
    """On a busy machine, threads of earlier tests drop their last arrays late."""
    looks: list[int] = []
    while len(looks) < 3 or len(set(looks[-3:])) > 1:
        time.sleep(0.02)
        looks.append(mx.get_active_memory())


def test_the_peak_counts_what_lives_at_one_time() -> None:
    x = mx.ones((MB,))
    mx.eval(x)
    with MemoryProfiler() as profiler:
        y = mx.sqrt(x + 1)
        mx.eval(y)
        del y
        profiler.watch(x * 2)
    stats = profiler.stats
    assert 4 <= stats.increase_mb < 4 * 3  # one result, and at most the two arrays of the chain
    assert stats.peak_allocated_mb >= stats.allocated_before_mb + 4
    assert stats.peak_reserved_mb >= stats.peak_allocated_mb
    assert stats.execution_time_ms > 0
    assert stats.device == "cpu"


def test_a_nested_output_is_evaluated_before_the_block_ends() -> None:
    with MemoryProfiler() as profiler:
        found = profiler.watch({"a": [mx.zeros((MB,)) + 1], "b": (mx.zeros((MB,)) + 2, "text", None)})
    assert profiler.stats.increase_mb >= 8
    assert found["a"][0][0].item() == 1


def test_a_block_that_computes_nothing_is_reported() -> None:
    with (
        pytest.warns(RuntimeWarning, match=r"almost nothing was allocated.*must be passed to watch"),
        MemoryProfiler(),
    ):
        lazy = mx.zeros((MB,)) + 1
    assert lazy.shape == (MB,)


def test_an_error_in_the_block_passes_through_and_there_are_no_figures() -> None:
    profiler = MemoryProfiler("cpu")
    with pytest.raises(KeyError), profiler:
        raise KeyError
    with pytest.raises(RuntimeError, match="MemoryProfiler: stats: no block has ended yet"):
        profiler.stats  # noqa: B018


def test_a_profiler_can_be_used_again_and_a_device_named() -> None:
    profiler = MemoryProfiler("cpu")
    increases = []
    for size in (MB, 2 * MB):
        with profiler:
            profiler.watch(mx.zeros((size,)) + 1)
        increases.append(profiler.stats.increase_mb)
    assert increases[1] == pytest.approx(increases[0] + 4)
    with pytest.raises(ArgumentError, match="MemoryProfiler: device: got 'tpu', expected one of"):
        MemoryProfiler("tpu")


def test_a_function_is_measured_with_its_outputs() -> None:
    calls = []

    def add(x: mx.array, *, number: int) -> mx.array:
        calls.append(number)
        return x + number

    x = mx.zeros((MB,))
    found = profile_attention_function(add, x, num_warmup=2, num_iterations=5, number=3)
    assert calls == [3] * 7
    assert (found["num_warmup"], found["num_iterations"], found["device"]) == (2, 5, "cpu")
    times = [found[f"{name}_execution_time_ms"] for name in ("min", "p10", "median", "p90", "max")]
    assert times == sorted(times)
    assert times[0] > 0
    assert found["min_execution_time_ms"] <= found["avg_execution_time_ms"] <= found["max_execution_time_ms"]
    assert found["std_execution_time_ms"] >= 0
    assert found["max_peak_allocated_mb"] >= found["avg_peak_allocated_mb"] >= 8


def test_no_iterations_and_no_function_are_refused() -> None:
    with pytest.raises(ArgumentError, match="num_iterations: got 0, expected at least 1"):
        profile_attention_function(mx.abs, mx.ones(3), num_iterations=0)
    with pytest.raises(TypeError, match="profile_attention_function: fn: got an int, expected a function"):
        profile_attention_function(3)  # type: ignore[arg-type]


def test_a_timer_evaluates_before_it_stops() -> None:
    with MemoryProfiler() as memory, timer("sum") as timed:
        timed.watch(mx.zeros((MB,)) + 1)
    assert memory.stats.increase_mb >= 4  # so it was evaluated inside
    assert timed.name == "sum"
    assert timed.milliseconds is not None
    assert timed.milliseconds > 0
    watch = KernelTimer()
    watch.start()
    assert watch.stop(mx.ones(3) + 1) == watch.milliseconds
    with pytest.raises(RuntimeError, match=r"KernelTimer: stop: start\(\) was not called"):
        watch.stop()


def test_a_block_without_warnings_gives_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with MemoryProfiler() as profiler:
            mx.eval(mx.zeros((MB,)) + 1)
    assert profiler.stats.increase_mb >= 4
