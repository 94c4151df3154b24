"""What the layers compute: equal to the naive layer, with exact windows, and the rule of dropout."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from tiny_llm import flash_attention_v1
from tiny_llm.nn import (
    FlashAttentionV1,
    FlashAttentionV2,
    FusedFlashAttention,
    GroupedQueryAttention,
    MaskedAttention,
    MultiQueryAttention,
    NaiveAttention,
    SlidingWindowAttention,
    create_causal_mask,
    validate_attention,
)

from ..support.refusal import refused
from .layers import LAYERS, TILED, make, tokens


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_agrees_with_the_naive_one(layer, causal):
    errors = validate_attention(make(layer, causal=causal, bias=causal))
    assert {"lengths", "dtypes", "large values", "layouts", "gradients"} <= errors.keys()
    assert ("masks" in errors) is layer.takes_masks


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "of_keys"), [(1, 1), (4, 1), (4, 4), (6, 3), (8, 2)])
def test_groups_of_every_size_agree_with_the_naive_layer(heads, of_keys):
    validate_attention(make(GroupedQueryAttention, 8 * heads, heads, num_kv_heads=of_keys, causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", [1, 40, 72, 128])
def test_heads_of_every_size_agree_with_the_naive_layer(head_dim):
    validate_attention(make(FusedFlashAttention, 2 * head_dim, 2, causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 4, 7, 8, 33, 200])
def test_windows_agree_with_the_naive_layer(window, causal):
    validate_attention(make(SlidingWindowAttention, window_size=window, causal=causal))


def influences(layer, length):
    """bool [N, N]: which tokens change which outputs, seen from outside."""
    x = tokens(length, batch=1)
    changed = mx.repeat(x, length, axis=0) + mx.eye(length)[:, :, None]
    return mx.abs(layer(changed)[0] - layer(x)[0]).max(axis=-1).T > 1e-6


@pytest.mark.parametrize(("causal", "window", "left", "right"), [
    (True, 1, 0, 0), (True, 8, 7, 0), (False, 1, 0, 0), (False, 7, 3, 3), (False, 8, 4, 3),
])  # fmt: skip
def test_a_window_of_w_sees_exactly_w_keys(causal, window, left, right):
    layer = make(SlidingWindowAttention, window_size=window, causal=causal)
    seen = influences(layer, 40)
    row, column = mx.arange(40)[:, None], mx.arange(40)
    assert mx.array_equal(seen, (column >= row - left) & (column <= row + right))
    assert seen[20].sum().item() == window
    assert mx.array_equal(seen, layer.visible(40))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_causal_layer_hides_later_tokens_and_another_none(layer):
    assert mx.array_equal(influences(make(layer, causal=True), 12), create_causal_mask(12))
    assert influences(make(layer, causal=False), 12).all()


@pytest.mark.parametrize("layer", TILED)
def test_the_block_size_does_not_change_the_result(layer):
    if layer is MaskedAttention:
        sizes = [{"chunk_size": size} for size in (1, 16, 1024)]
    else:
        sizes = [{"block_size": size} for size in (1, 16, 64, 1000)]
    first, *others = [make(layer, causal=True, **size)(tokens(50))[0] for size in sizes]
    assert all(mx.allclose(first, other, rtol=0, atol=2e-6) for other in others)


def test_only_the_naive_layer_returns_weights_and_their_rows_add_up_to_one():
    mask = mx.ones((20, 20), mx.bool_)
    mask[3] = False
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        layer = make(NaiveAttention)
        layer.set_dtype(dtype)
        out, weights = layer(tokens().astype(dtype), mask)
        assert (out.dtype, weights.dtype, weights.shape) == (dtype, mx.float32, (2, 4, 20, 20))
        assert mx.allclose(weights.sum(axis=-1), (mx.arange(20) != 3).astype(mx.float32))
    assert all(make(layer)(tokens())[1] is None for layer in TILED)


@pytest.mark.parametrize("layer", LAYERS)
def test_scores_beyond_the_range_of_float16_give_what_float32_gives(layer):
    """Queries and keys are exact in float16, their products of up to 10^6 are not."""
    made = make(layer, bias=False, causal=True)
    for name in ("qkv_proj", "q_proj", "k_proj"):
        if name in made:
            rows = mx.arange(len(made[name].weight))[:, None]  # of query, key and value, 32 of each
            made[name].weight = mx.where(mx.arange(32) == rows % 32, mx.where(rows < 64, 300.0, 1.0), 0)
    x = mx.round(tokens())
    wide = made(x)[0]
    assert mx.abs(made.project(x)[0]).max() >= 600
    assert wide.any()
    made.set_dtype(mx.float16)
    half = made(x.astype(mx.float16))[0]
    assert half.dtype == mx.float16
    assert mx.isfinite(half).all()
    assert mx.allclose(half.astype(mx.float32), wide, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("layer", TILED)
def test_dropout_is_refused_in_training_mode_and_nothing_in_evaluation(layer):
    made = make(layer, dropout=0.5)
    with refused("dropout", NotImplementedError, function=layer.__name__) as caught:
        made(tokens())
    assert "call eval() or set dropout=0" in str(caught.value)
    made.eval()
    expected = make(layer)(tokens())[0]
    assert mx.array_equal(made(tokens())[0], expected)
    made.train()
    made.dropout = 0
    assert mx.array_equal(made(tokens())[0], expected)


def test_the_naive_layer_drops_weights_and_not_outputs():
    layer = make(NaiveAttention, 32, 1, dropout=0.5, bias=False)
    identity = mx.eye(32)
    layer.qkv_proj.weight[64:] = identity
    layer.out_proj.weight = identity
    used, weights = layer(identity[None])  # values and output projection are identities: the output is P
    doubled = mx.isclose(used, 2 * weights[:, 0])
    assert (doubled | (used == 0)).all()
    assert 400 < doubled.sum().item() < 624  # of 1024, five standard deviations around the half
    assert mx.allclose(weights.sum(axis=-1), mx.array(1.0))
    layer.eval()
    assert mx.array_equal(layer(identity[None])[0], weights[:, 0])


def test_v1_runs_its_schedule_and_says_so():
    layer = make(FlashAttentionV1, causal=True)
    out, _ = flash_attention_v1(*layer.project(tokens()), causal=True, tile=(8, 8))
    assert mx.allclose(layer(tokens())[0], layer.merge_heads(out), atol=1e-6)
    assert layer.explain(2, 20).schedule == "v1"
    # The states of all rows: O before the division, m and l.
    rows = 2 * layer.num_heads * 20
    assert layer.explain(2, 20).workspace_bytes >= 4 * rows * (layer.head_dim + 2)
    assert make(FlashAttentionV2, causal=True).explain(2, 20).schedule == "v2"


@pytest.mark.parametrize("layer", LAYERS)
def test_an_empty_batch_and_an_empty_sequence_have_empty_outputs(layer):
    assert make(layer)(tokens(0))[0].shape == (2, 0, 32)
    assert make(layer)(tokens(5, batch=0))[0].shape == (0, 5, 32)


@pytest.mark.parametrize("layer", LAYERS)
def test_quantized_projections_are_those_of_their_weights(layer):
    quantized, plain = make(layer), make(layer)
    nn.quantize(quantized, group_size=32, bits=8)
    for name, projection in quantized.children().items():
        packed = (projection.weight, projection.scales, projection.biases)
        plain[name].weight = mx.dequantize(*packed, group_size=32, bits=8)
    assert mx.allclose(quantized(tokens())[0], plain(tokens())[0], rtol=0, atol=1e-5)


def test_one_head_of_keys_is_multi_query():
    one, two = make(MultiQueryAttention), make(GroupedQueryAttention, num_kv_heads=1)
    assert mx.array_equal(one(tokens())[0], two(tokens())[0])
