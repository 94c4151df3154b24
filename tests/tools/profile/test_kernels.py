"""The kernel profiler: unknown stays unknown, shares are not clipped, speedups are returned."""

from __future__ import annotations

import warnings

import mlx.core as mx
import pytest

from tiny_llm import ArgumentError, explain, flash_attention
from tiny_llm_tools.profile import KernelProfiler, attention_bytes, attention_flops, measured_peaks

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def few(**peaks: float) -> KernelProfiler:
    return KernelProfiler(warmup=1, iterations=3, **peaks)


def test_rates_follow_from_latency_and_counts() -> None:
    calls = []

    def work() -> mx.array:
        calls.append(1)
        return mx.ones((1000,)) + 1

    profiler = few(peak_tflops_fp16=2e-9, peak_bandwidth_tb=4e-9)
    found = profiler.profile_function(work, "add", flops=10**6, memory_bytes=10**7, size=1000)
    assert len(calls) == 1 + 1 + 3  # warm-up, memory, and the timed runs
    assert (found.name, found.num_iterations, found.metadata) == ("add", 3, {"size": 1000})
    seconds = found.latency_ms / 1e3
    assert found.tflops == pytest.approx(1e6 / seconds / 1e12)
    assert found.memory_bandwidth_tb == pytest.approx(1e7 / seconds / 1e12)
    assert found.compute_utilization_pct == pytest.approx(100 * found.tflops / 2e-9)
    assert found.memory_utilization_pct == pytest.approx(100 * found.memory_bandwidth_tb / 4e-9)
    assert found.compute_utilization_pct > 100  # not clipped
    assert found.peak_memory_mb is not None
    assert found.peak_memory_mb >= 0.004
    assert profiler.results == [found]


def test_what_is_unknown_is_none() -> None:
    found = few().profile_function(lambda: mx.ones(3) + 1, "add", flops=100)
    assert found.tflops is not None
    assert found.compute_utilization_pct is None
    assert (found.memory_bytes, found.memory_bandwidth_tb, found.memory_utilization_pct) == (None, None, None)
    assert found.speedup is None


def test_implementations_are_compared_with_the_first() -> None:
    order = []
    x = mx.ones((400, 400))

    def once() -> mx.array:
        order.append("slow")
        return x @ x @ x @ x @ x

    def never() -> mx.array:
        order.append("fast")
        return x[0, 0] + 1

    profiler = few()
    found = profiler.compare_implementations({"slow": once, "fast": never}, flops=10)
    assert list(found) == ["slow", "fast"]
    assert found["slow"].speedup == 1
    assert found["fast"].speedup == pytest.approx(found["slow"].latency_ms / found["fast"].latency_ms)
    assert found["fast"].flops == 10
    # In turn, every second round backwards, so that a drift of the machine affects both alike.
    assert order[-6:] == ["slow", "fast", "fast", "slow", "slow", "fast"]
    assert profiler.results == list(found.values())


def test_attention_has_its_path_tiles_and_exact_work() -> None:
    query = mx.random.normal((2, 4, 200, 32))
    key = value = mx.random.normal((2, 2, 200, 32))
    profiler = few(peak_tflops_fp16=1.0)
    found = profiler.profile_attention(query, key, value, mask="causal")
    plan = explain(flash_attention, query, key, value, mask="causal")
    assert found.metadata == {
        "path": plan.path, "tiles_visited": plan.tiles_visited, "tiles_total": plan.tiles_total,
    }  # fmt: skip
    assert 0 < plan.tiles_visited < plan.tiles_total
    assert found.flops == attention_flops(2, 4, 200, 32, causal=True)
    assert found.memory_bytes == attention_bytes(2, 4, 200, 32, num_kv_heads=2)
    assert found.compute_utilization_pct == pytest.approx(100 * found.flops / found.latency_ms / 1e9)
    windowed = profiler.profile_attention(query, key, value, causal=True, window=16, name="window")
    assert windowed.flops == attention_flops(2, 4, 200, 32, causal=True, window=16)
    assert windowed.metadata["tiles_visited"] < found.metadata["tiles_visited"]


def test_the_work_of_a_mask_array_is_unknown() -> None:
    query = key = value = mx.random.normal((1, 2, 32, 16))
    for options in ({"mask": mx.ones((32, 32), dtype=mx.bool_)}, {"kv_lens": [7]}):
        assert few().profile_attention(query, key, value, **options).flops is None


def test_a_stage_is_measured_with_what_it_watches() -> None:
    profiler = few()
    with profiler.profile("scores", layer=3) as stage:
        out = stage.watch(mx.ones((1_000_000,)) + 1)
    (found,) = profiler.results
    assert (found.name, found.num_iterations, found.latency_std_ms) == ("scores", 1, 0)
    assert found.metadata == {"layer": 3}
    assert found.peak_memory_mb is not None
    assert found.peak_memory_mb >= out.nbytes / 1e6


def test_a_small_stage_is_measured_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with few().profile("small") as stage:
            stage.watch(mx.ones(3) + 1)


def test_the_summary_has_a_line_for_each_result_and_reset_forgets_them() -> None:
    profiler = few()
    query = key = value = mx.random.normal((1, 1, 80, 16))
    profiler.profile_attention(query, key, value, mask="causal")
    profiler.compare_implementations({"a": lambda: query + 1})
    head, attention, one = profiler.summary().splitlines()
    assert head.split()[:2] == ["name", "ms"]
    visited, total = (profiler.results[0].metadata[name] for name in ("tiles_visited", "tiles_total"))
    assert f"{visited}/{total}" in attention
    assert one.split()[0] == "a"
    assert one.split()[-1] == "1.00x"
    profiler.reset()
    assert profiler.results == []


def test_the_peaks_of_this_machine_are_measured() -> None:
    peaks = measured_peaks(mx.float32)
    assert peaks.tflops is not None
    assert peaks.bandwidth_tb is not None
    assert peaks.tflops > 0
    assert peaks.bandwidth_tb > 0
    profiler = KernelProfiler.of_this_machine(warmup=0, iterations=1)
    assert (
        profiler.profile_function(lambda: mx.ones(3) + 1, "add", flops=3).compute_utilization_pct is not None
    )


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="KernelProfiler: iterations: got 0, expected at least 1"):
        KernelProfiler(iterations=0)
    with pytest.raises(ArgumentError, match="peak_tflops_fp16: got -1, expected a number above 0, or None"):
        KernelProfiler(peak_tflops_fp16=-1)
    with pytest.raises(ArgumentError, match="implementations: got none, expected at least one"):
        few().compare_implementations({})
    with pytest.raises(ArgumentError, match="flops: got -5, expected at least 0"):
        few().profile_function(lambda: mx.ones(3), "x", flops=-5)
    with pytest.raises(TypeError, match="profile_function: fn: got an int, expected a function"):
        few().profile_function(3, "x")  # type: ignore[arg-type]
