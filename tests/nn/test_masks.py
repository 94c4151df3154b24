"""Masks of layers: True shows a key, shapes broadcast, hidden tokens, and chunks where no kernel applies."""

from __future__ import annotations

import mlx.core as mx
import pytest

from tiny_llm.nn import (
    FlashAttentionV1,
    FlashAttentionV2,
    MaskedAttention,
    create_causal_mask,
    create_padding_mask,
)

from ..support.refusal import refused
from .layers import TAKE_MASKS, make, tokens


@pytest.mark.parametrize("layer", TAKE_MASKS)
def test_true_shows_a_key_and_a_token_that_sees_nothing_gives_the_bias(layer):
    made = make(layer)
    hidden = mx.zeros((20, 20), mx.bool_)
    for mask in (hidden, mx.full((20, 20), -mx.inf)):
        assert mx.array_equal(made(tokens(), mask)[0], mx.broadcast_to(made.out_proj.bias, (2, 20, 32)))
    assert mx.allclose(made(tokens(), ~hidden)[0], made(tokens())[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layer", TAKE_MASKS)
def test_padding_has_no_effect_on_real_tokens(layer):
    made = make(layer, causal=False)
    x = tokens(20)
    padded, _ = made(x, create_padding_mask([13, 20], 20))
    assert mx.allclose(padded[:1, :13], made(x[:1, :13])[0], rtol=0, atol=2e-6)
    assert mx.allclose(padded[1:], made(x[1:])[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("layer", TAKE_MASKS)
@pytest.mark.parametrize(
    "mask",
    [
        mx.ones((20, 20), mx.int32),
        mx.ones((20,), mx.bool_),
        mx.ones((1, 2, 4, 20, 20), mx.bool_),
        mx.ones((20, 19), mx.bool_),
        mx.ones((3, 20, 20), mx.bool_),
        mx.ones((2, 3, 20, 20), mx.bool_),
        "causal",
    ],
    ids=lambda mask: f"{getattr(mask, 'dtype', mask)}{getattr(mask, 'shape', '')}",
)
def test_a_wrong_mask_is_refused(layer, mask):
    with refused("attn_mask", function=layer.__name__):
        make(layer)(tokens(), mask)


@pytest.mark.parametrize("layer", TAKE_MASKS)
def test_nan_in_a_mask_surfaces(layer):
    mask = mx.zeros((20, 20))
    mask[7, 4] = mx.nan
    out, _ = make(layer)(tokens(), mask)
    assert mx.isnan(out).all(axis=-1).tolist() == [[i == 7 for i in range(20)]] * 2


@pytest.mark.parametrize("layer", [FlashAttentionV1, FlashAttentionV2])
def test_the_schedules_refuse_masks_and_name_the_layer_that_takes_them(layer):
    with refused("attn_mask", NotImplementedError, function=layer.__name__) as caught:
        make(layer)(tokens(), create_causal_mask(20))
    assert "MaskedAttention" in str(caught.value)


@pytest.mark.filterwarnings("ignore:flash_attention. falling back")
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_without_a_kernel_is_computed_in_chunks_of_rows(causal):
    layer = make(MaskedAttention, 300, 1, causal=causal, chunk_size=8)
    whole = make(MaskedAttention, 300, 1, causal=causal)
    x = tokens(20, 300)
    numbers = mx.random.normal((2, 20, 20), key=mx.random.key(4))
    assert layer.explain(2, 20).path == "reference"
    for mask in (None, numbers, numbers > 0, create_padding_mask([3, 20], 20), mx.ones((20, 1), mx.bool_)):
        assert mx.allclose(layer(x, mask)[0], whole(x, mask)[0], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flash_attention. falling back")
@pytest.mark.slow
def test_chunks_bound_the_memory_without_a_kernel():
    small, large = (
        make(MaskedAttention, 257, 1, chunk_size=size).get_memory_usage(1, 2048, measure=True)
        for size in (128, 4096)
    )
    whole_scores = 2048 * 2048 * 4 / 1e6
    assert small["measured_peak_mb"] < large["measured_peak_mb"] - whole_scores


def test_padding_and_causal_masks():
    padding = create_padding_mask([0, 2, 3], 3)
    assert padding.shape == (3, 1, 1, 3)
    assert padding[:, 0, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]
    assert mx.array_equal(create_padding_mask(mx.array([0, 2, 3]), 3), padding)
    assert create_causal_mask(2).tolist() == [[True, False], [True, True]]
    assert create_causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert create_causal_mask(3, 1).tolist() == [[False], [False], [True]]


def test_padding_within_a_compiled_function():
    lengths = mx.array([1, 2])
    compiled = mx.compile(lambda lengths: create_padding_mask(lengths, 3))
    assert mx.array_equal(compiled(lengths), create_padding_mask(lengths, 3))


@pytest.mark.parametrize(
    ("lengths", "max_len", "argument", "error"),
    [
        ([4], 3, "lengths", ValueError),
        ([-1], 3, "lengths", ValueError),
        (mx.array([4]), 3, "lengths", ValueError),
        (mx.array([[1]]), 3, "lengths", ValueError),
        (mx.array([1.0]), 3, "lengths", ValueError),
        ([1.0], 3, "lengths", TypeError),
        (3, 3, "lengths", TypeError),
        ([1], -1, "max_len", ValueError),
    ],
    ids=str,
)
def test_wrong_lengths_are_refused(lengths, max_len, argument, error):
    with refused(argument, error, function="create_padding_mask"):
        create_padding_mask(lengths, max_len)
