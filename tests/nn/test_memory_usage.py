"""get_memory_usage and get_causal_efficiency: the golden values, and the measured peak."""

from __future__ import annotations

import json
import math

import mlx.core as mx
import pytest

from tiny_llm.nn import (
    FlashAttentionV1,
    FlashAttentionV2,
    FusedFlashAttention,
    GroupedQueryAttention,
    MaskedAttention,
    MultiQueryAttention,
    NaiveAttention,
    SlidingWindowAttention,
)

from ..support.refusal import refused
from .layers import LAYERS, TILED, make

LARGE, SMALL = (4, 4096), (2, 1024)  # batch_size, seq_len; embed_dim 512, 8 heads, float32


def usage(layer, size, **options):
    return make(layer, 512, 8, **options).get_memory_usage(*size)


def assert_golden(got, golden):
    assert {name: round(got[name], 3) for name in golden} == golden


@pytest.mark.parametrize(
    ("size", "golden"),
    [
        (
            LARGE,
            {
                "attention_matrix_mb": 2147.484,
                "qkv_mb": 100.663,
                "output_mb": 33.554,
                "total_mb": 2281.701,
                "total_gb": 2.282,
                "attention_matrix_percentage": 94.118,
            },
        ),
        (
            SMALL,
            {
                "attention_matrix_mb": 67.109,
                "qkv_mb": 12.583,
                "output_mb": 4.194,
                "total_mb": 83.886,
                "attention_matrix_percentage": 80.0,
            },
        ),
    ],
)
def test_naive(size, golden):
    got = usage(NaiveAttention, size)
    assert_golden(got, golden)
    assert got["bottleneck"] == "attention matrix"
    assert got["comparison_with_naive"] == {"naive_mb": got["total_mb"], "reduction_ratio": 1.0}
    assert "warning" not in got


def test_naive_warns_above_eight_gigabytes():
    assert "FlashAttentionV2" in usage(NaiveAttention, (4, 8192))["warning"]


@pytest.mark.parametrize("layer", [FlashAttentionV1, FlashAttentionV2, FusedFlashAttention])
@pytest.mark.parametrize(
    ("size", "block", "statistics", "total", "ratio"),
    [(LARGE, 0.524, 1.049, 135.791, 16.803), (SMALL, 0.262, 0.131, 17.170, 4.885)],
)
def test_tiled(layer, size, block, statistics, total, ratio):
    got = usage(layer, size)
    assert_golden(got, {"block_attention_mb": block, "statistics_mb": statistics, "total_mb": total})
    assert got["block_size"] == 64
    compared = got["comparison_with_naive"]
    assert_golden(compared, {"flash_mb": total, "reduction_ratio": ratio})
    assert compared["naive_mb"] == usage(NaiveAttention, size)["total_mb"]


@pytest.mark.parametrize(("size", "window", "total"), [(LARGE, 134.218, 135.791), (SMALL, 16.777, 17.170)])
def test_sliding_window(size, window, total):
    got = usage(SlidingWindowAttention, size, window_size=256)
    assert_golden(got, {"window_mb": window, "total_mb": total})
    assert (got["window_size"], got["effective_context"]) == (256, 256)
    assert got["vs_full_reduction"] == size[1] / 256
    assert got["blocks_per_window"] == 5
    assert usage(SlidingWindowAttention, size, window_size=256, causal=False)["blocks_per_window"] == 6
    assert_golden(got["comparison_with_naive"], {"sliding_window_mb": total})


def test_a_window_larger_than_the_sequence():
    got = usage(SlidingWindowAttention, (1, 100))
    assert (got["effective_context"], got["vs_full_reduction"], got["blocks_per_window"]) == (100, 1.0, 2)


@pytest.mark.parametrize(
    ("layer", "size", "golden", "ratio"),
    [
        (
            GroupedQueryAttention,
            LARGE,
            {"q_mb": 33.554, "kv_mb": 16.777, "total_mb": 83.886, "kv_savings_ratio": 4.0},
            1.6,
        ),
        (
            GroupedQueryAttention,
            SMALL,
            {"q_mb": 4.194, "kv_mb": 2.097, "total_mb": 10.486, "kv_savings_ratio": 4.0},
            1.6,
        ),
        (MultiQueryAttention, LARGE, {"kv_mb": 8.389, "total_mb": 75.497, "kv_savings_ratio": 8.0}, 1.778),
        (MultiQueryAttention, SMALL, {"kv_mb": 1.049, "total_mb": 9.437, "kv_savings_ratio": 8.0}, 1.778),
    ],
)
def test_grouped(layer, size, golden, ratio):
    got = usage(layer, size)
    assert_golden(got, golden)
    assert got["expanded_kv_mb"] == 0
    assert got["effective_forward_mb"] == got["total_mb"]
    assert got["full_mha_kv_mb"] == pytest.approx(got["kv_mb"] * got["kv_savings_ratio"])
    assert (got["num_query_heads"], got["num_kv_heads"]) == (8, 2 if layer is GroupedQueryAttention else 1)
    assert got["complexity"] == "O(N) forward and backward"
    assert_golden(got["comparison_with_naive"], {"reduction_ratio": ratio, "gqa_mb": golden["total_mb"]})


@pytest.mark.parametrize(("size", "mask", "total"), [(LARGE, 16.777, 152.568), (SMALL, 1.049, 18.219)])
def test_masked(size, mask, total):
    got = usage(MaskedAttention, size)
    assert_golden(got, {"mask_mb": mask, "total_mb": total, "chunk_processing_mb": 0.0})
    assert got["chunk_size"] == 1024
    assert_golden(got["comparison_with_naive"], {"masked_mb": total})
    layer = make(MaskedAttention, 512, 8)
    shape = (size[0], 1, 1, size[1])
    padding = layer.get_memory_usage(*size, mask_shape=shape, mask_dtype=mx.float32)
    assert padding["mask_mb"] == 4 * size[0] * size[1] / 1e6


@pytest.mark.parametrize("layer", [FlashAttentionV2, FusedFlashAttention, MaskedAttention])
def test_saved_for_backward(layer):
    made = make(layer, 512, 8)
    assert round(made.get_memory_usage(*LARGE)["saved_for_backward_mb"], 3) == 134.742
    for half in (mx.float16, mx.bfloat16):
        assert round(made.get_memory_usage(*LARGE, dtype=half)["saved_for_backward_mb"], 3) == 67.633
    made.set_dtype(mx.float16)
    assert round(made.get_memory_usage(*LARGE)["saved_for_backward_mb"], 3) == 67.633


def test_saved_for_backward_of_grouped_heads():
    assert round(usage(GroupedQueryAttention, LARGE)["saved_for_backward_mb"], 3) == 84.410


@pytest.mark.parametrize("layer", TILED)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_what_is_saved_is_what_the_operation_says(layer, dtype):
    made = make(layer, 512, 8)
    saved = made.get_memory_usage(*SMALL, dtype=dtype)["saved_for_backward_mb"]
    assert saved == made.explain(*SMALL, dtype=dtype).saved_bytes / 1e6


@pytest.mark.parametrize("layer", TILED)
def test_saved_memory_doubles_with_the_length(layer):
    once, twice = (usage(layer, (1, length))["saved_for_backward_mb"] for length in (2048, 4096))
    assert twice / once == 2


@pytest.mark.parametrize("layer", LAYERS)
def test_a_report_is_strict_json_also_for_nothing(layer):
    for size in (SMALL, (0, 1024), (2, 0)):
        report = json.loads(json.dumps(usage(layer, size), allow_nan=False))
        common = {"qkv_mb", "output_mb", "total_mb", "total_gb", "complexity", "comparison_with_naive"}
        assert common | {"saved_for_backward_mb", "workspace_mb"} <= report.keys()
        assert report["total_gb"] == pytest.approx(report["total_mb"] / 1000)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_measured_peak_has_the_order_of_the_formula(layer):
    """It is linear where the formula is."""
    made = make(layer, 64, 2)
    small, large = (made.get_memory_usage(1, tokens, measure=True) for tokens in (128, 512))
    for got in (small, large):
        assert got["output_mb"] <= got["measured_peak_mb"] <= 3 * got["total_mb"]
    power = math.log(large["measured_peak_mb"] / small["measured_peak_mb"], 4)
    assert power > 1.4 if layer is NaiveAttention else power < 1.4


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("batch_size", {"batch_size": -1}),
        ("seq_len", {"seq_len": -1}),
        ("dtype", {"dtype": mx.int32}),
        ("dtype", {"dtype": mx.float16, "measure": True}),  # the layer's parameters are float32
    ],
    ids=str,
)
def test_wrong_sizes_are_refused(argument, options):
    with refused(argument, function="FlashAttentionV2"):
        make(FlashAttentionV2).get_memory_usage(**{"batch_size": 1, "seq_len": 8, **options})


@pytest.mark.parametrize(
    ("length", "total", "computed", "percent"),
    [
        (0, 0, 0, 0),
        (1, 1, 1, 0),
        (64, 1, 1, 0),
        (65, 4, 3, 25),
        (512, 64, 36, 43.75),
        (1000, 256, 136, 46.875),
        (1024, 256, 136, 46.875),
        (2048, 1024, 528, 48.4375),
        (4096, 4096, 2080, 49.21875),
        (8192, 16384, 8256, 49.609375),
    ],
)
def test_causal_efficiency(length, total, computed, percent):
    assert make(FlashAttentionV2, causal=True).get_causal_efficiency(length) == {
        "total_blocks": total,
        "computed_blocks": computed,
        "skipped_blocks": total - computed,
        "compute_savings_percent": percent,
        "sequence_length": length,
        "block_size": 64,
    }
    full = make(FlashAttentionV2).get_causal_efficiency(length)
    assert (full["computed_blocks"], full["skipped_blocks"]) == (total, 0)
    assert full["compute_savings_percent"] == 0


def test_causal_efficiency_refuses_a_negative_length():
    with refused("seq_len", function="FlashAttentionV2"):
        make(FlashAttentionV2).get_causal_efficiency(-1)
