"""Arguments of the layers: their order and defaults, and an error for each wrong one that names it."""

from __future__ import annotations

import inspect

import mlx.core as mx
import pytest

from tiny_llm.nn import (
    BaseAttention,
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
from .layers import LAYERS, make, tokens

BASE = "embed_dim, num_heads, dropout=0.0, bias=True, causal=False"
TILED = "embed_dim, num_heads, block_size=64, dropout=0.0, bias=True, causal=False"


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        (BaseAttention, BASE),
        (NaiveAttention, BASE),
        (FlashAttentionV1, TILED),
        (FlashAttentionV2, TILED),
        (
            SlidingWindowAttention,
            "embed_dim, num_heads, window_size=4096, block_size=64, dropout=0.0, bias=True, causal=True",
        ),
        (
            GroupedQueryAttention,
            "embed_dim, num_heads, num_kv_heads, block_size=64, dropout=0.0, bias=True, causal=False",
        ),
        (MultiQueryAttention, TILED),
        (MaskedAttention, BASE + ", chunk_size=1024"),
        (FusedFlashAttention, BASE + ", block_size=64"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_arguments_stand_in_their_order_with_their_defaults(layer, wanted):
    parameters = inspect.signature(layer).parameters.values()
    got = [p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters]
    assert ", ".join(got) == wanted


WRONG = [
    ("embed_dim", 0, ValueError),
    ("embed_dim", -32, ValueError),
    ("embed_dim", 30, ValueError),  # no multiple of the four heads
    ("embed_dim", 32.0, TypeError),
    ("num_heads", 0, ValueError),
    ("num_heads", -4, ValueError),
    ("num_heads", True, TypeError),
    ("dropout", -0.1, ValueError),
    ("dropout", 1, ValueError),
    ("dropout", float("nan"), ValueError),
    ("dropout", "0.1", TypeError),
    ("bias", 1, TypeError),
    ("causal", None, TypeError),
    ("block_size", 0, ValueError),
    ("block_size", 2.5, TypeError),
    ("window_size", 0, ValueError),
    ("window_size", -1, ValueError),
    ("num_kv_heads", 0, ValueError),
    ("num_kv_heads", 3, ValueError),
    ("num_kv_heads", 8, ValueError),
    ("chunk_size", 0, ValueError),
]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("argument", "wrong", "error"), WRONG, ids=str)
def test_a_wrong_argument_is_refused_with_its_value(layer, argument, wrong, error):
    if argument not in inspect.signature(layer).parameters:
        with pytest.raises(TypeError, match=argument):
            make(layer, **{argument: wrong})
        return
    with refused(argument, error, function=layer.__name__) as caught:
        make(layer, **{argument: wrong})
    if error is ValueError:
        assert str(wrong) in str(caught.value)


def test_a_grouped_layer_needs_its_number_of_heads():
    with pytest.raises(TypeError, match="num_kv_heads"):
        GroupedQueryAttention(32, 4)


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match=r"^BaseAttention: got an abstract class, .* __call__, get_memory"):
        BaseAttention(32, 4)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_parameters_have_their_names_and_shapes(layer):
    for bias in (True, False):
        made = make(layer, bias=bias)
        shapes = {name: made[name].weight.shape for name in made.children()}
        if layer in (GroupedQueryAttention, MultiQueryAttention):
            of_keys = (8 * made.num_kv_heads, 32)
            assert shapes == {"q_proj": (32, 32), "k_proj": of_keys, "v_proj": of_keys, "out_proj": (32, 32)}
        else:
            assert shapes == {"qkv_proj": (96, 32), "out_proj": (32, 32)}
        assert ("bias" in made.out_proj) is bias
        assert (made.head_dim, made.scale) == (8, 8**-0.5)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_wrong_input_is_refused(layer):
    made = make(layer)
    for wrong in (tokens()[0], tokens(embed_dim=16), tokens()[None], tokens().astype(mx.int32)):
        with refused("x", function=layer.__name__):
            made(wrong)
    with refused("x", TypeError, function=layer.__name__):
        made([[1.0]])
