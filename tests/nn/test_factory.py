"""get_attention: names and aliases, and clear errors; check_installation."""

from __future__ import annotations

import warnings

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
    check_installation,
    get_attention,
)

from ..support.refusal import refused

ALIASES = {
    "naive": NaiveAttention,
    "flash_v1": FlashAttentionV1,
    "flash_v2": FlashAttentionV2,
    "sliding_window": SlidingWindowAttention,
    "gqa": GroupedQueryAttention,
    "grouped_query": GroupedQueryAttention,
    "mqa": MultiQueryAttention,
    "multi_query": MultiQueryAttention,
    "masked": MaskedAttention,
    "flash": FusedFlashAttention,
    "fused": FusedFlashAttention,
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_name_gives_its_class(name):
    options = {"num_kv_heads": 2} if ALIASES[name] is GroupedQueryAttention else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for spelled in (name, name.upper(), name.replace("_", "-"), name.replace("_", " ").title()):
            assert type(get_attention(spelled, 32, 4, **options)) is ALIASES[name]


@pytest.mark.parametrize("name", ["triton", "triton_flash", "Triton-Flash"])
def test_a_name_of_triton_gives_the_fused_layer_with_one_warning(name):
    with pytest.warns(UserWarning, match="FusedFlashAttention") as caught:
        assert type(get_attention(name, 32, 4)) is FusedFlashAttention
    assert [warning.filename for warning in caught] == [__file__]


def test_options_reach_the_constructor():
    layer = get_attention("sliding_window", 32, 4, window_size=9, causal=False, bias=False)
    assert (layer.window_size, layer.causal, "bias" in layer.out_proj) == (9, False, False)
    assert get_attention("gqa", 32, 4, num_kv_heads=2).num_kv_heads == 2


def test_an_unknown_name_is_refused_with_all_names():
    with refused("type", function="get_attention") as caught:
        get_attention("linear", 32, 4)
    assert all(name in str(caught.value) for name in [*ALIASES, "triton", "triton_flash", "linear"])
    with refused("type", TypeError, function="get_attention"):
        get_attention(None, 32, 4)


@pytest.mark.parametrize("name", ["gqa", "grouped_query"])
def test_grouped_heads_need_their_number(name):
    with refused("num_kv_heads", function="GroupedQueryAttention"):
        get_attention(name, 32, 4)


@pytest.mark.parametrize(
    ("name", "keyword", "layer"),
    [
        ("naive", "block_size", "NaiveAttention"),
        ("masked", "block_size", "MaskedAttention"),
        ("flash_v2", "window_size", "FlashAttentionV2"),
        ("mqa", "num_kv_heads", "MultiQueryAttention"),
        ("fused", "chunksize", "FusedFlashAttention"),
    ],
)
def test_a_keyword_that_the_class_does_not_take_is_named(name, keyword, layer):
    with pytest.raises(TypeError, match=f"^{layer}: got an unknown option '{keyword}', expected one of"):
        get_attention(name, 32, 4, **{keyword: 2})


def test_the_installation_is_reported():
    report = check_installation()
    assert {"tiny_llm", "mlx", "devices", "extension"} <= report.keys()
    assert report["extension"] == {"loaded": True, "reason": None}
