"""validate_attention finds wrong layers, each by the check that is meant for the mistake."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import pytest

from tiny_llm import flash_attention
from tiny_llm.nn import (
    BaseAttention,
    FusedFlashAttention,
    GroupedQueryAttention,
    NaiveAttention,
    SlidingWindowAttention,
    validate_attention,
)
from tiny_llm.nn.validation import ValidationError

from ..support.refusal import refused
from .layers import make


class NoScale(FusedFlashAttention):
    def attend(self, query, key, value, mask):
        return flash_attention(query, key, value, 1.0, mask)


class OnlyTheFirstTile(FusedFlashAttention):
    def attend(self, query, key, value, mask):
        return super().attend(query, key[:, :, :64], value[:, :, :64], mask)


class ScoresInHalf(NaiveAttention):
    def __call__(self, x, attn_mask=None):
        query, key, value = self.project(x)
        scores = query @ key.swapaxes(-1, -2) * self.scale
        scores = mx.where(self.visible(x.shape[1]), scores, -mx.inf)
        return self.merge_heads(mx.softmax(scores, axis=-1) @ value), None


class NoGradientOfValues(FusedFlashAttention):
    def attend(self, query, key, value, mask):
        return super().attend(query, key, mx.stop_gradient(value), mask)


class TrueHides(FusedFlashAttention):
    def attend(self, query, key, value, mask):
        if mask is not None and mask.dtype == mx.bool_:
            mask = ~mask
        return super().attend(query, key, value, mask)


class MeanOfHidden(FusedFlashAttention):
    def attend(self, query, key, value, mask):
        if mask is not None:
            hidden = ~mask if mask.dtype == mx.bool_ else mx.isneginf(mask)
            mask = mx.where(hidden, -1e10, 0.0 if mask.dtype == mx.bool_ else mask)
        return super().attend(query, key, value, mask)


class TakesIntegers(FusedFlashAttention):
    def __call__(self, x, attn_mask=None):
        if attn_mask is not None and mx.issubdtype(attn_mask.dtype, mx.integer):
            attn_mask = attn_mask.astype(mx.float32)
        return super().__call__(x, attn_mask)


class OneKeyMore(SlidingWindowAttention):
    def options(self):
        return {"causal": self.causal, "window": self.window_size + 1}


class WrongHeads(GroupedQueryAttention):
    def attend(self, query, key, value, mask):
        return super().attend(query, key[:, ::-1], value[:, ::-1], mask)


class SavesScores(FusedFlashAttention):
    def get_memory_usage(self, batch_size, seq_len):
        return {"saved_for_backward_mb": batch_size * seq_len**2 / 1e6}


class KeepsScores(FusedFlashAttention):
    """Right, but quadratic, and its formulas do not say so."""

    def attend(self, query, key, value, mask):
        scores = self.scale * (query @ key.swapaxes(-1, -2))
        mask = mx.array(0.0) if mask is None else mask
        if mask.dtype == mx.bool_:
            mask = mx.where(mask, 0.0, -mx.inf)
        weights = mx.softmax((scores + mask).astype(mx.float32), axis=-1)
        return mx.nan_to_num(weights).astype(value.dtype) @ value


def options(layer):
    if issubclass(layer, GroupedQueryAttention):
        return {"num_kv_heads": 2}
    return {"window_size": 8} if issubclass(layer, SlidingWindowAttention) else {}


@pytest.mark.parametrize(
    ("layer", "check"),
    [
        (NoScale, "lengths: 15 tokens"),
        (OnlyTheFirstTile, "lengths: 65 tokens"),
        (ScoresInHalf, "large values"),
        (NoGradientOfValues, "gradients"),
        (TrueHides, "masks"),
        (MeanOfHidden, "hidden tokens: some see nothing"),
        (TakesIntegers, "masks: an int mask is not refused"),
        (OneKeyMore, "lengths"),
        (WrongHeads, "lengths"),
        (SavesScores, "memory: saved"),
        (KeepsScores, "memory: peaks"),
    ],
)
def test_a_wrong_layer_is_found(layer, check):
    mx.random.seed(1)
    with pytest.raises(ValidationError, match=f"^validate_attention: {layer.__name__}: {check}.*: error"):
        validate_attention(layer(32, 4, **options(layer)))


def test_the_layer_stays_as_it_is():
    layer = make(FusedFlashAttention, dropout=0.1)
    before = dict(nn.utils.tree_flatten(layer.parameters()))
    validate_attention(layer)
    after = dict(nn.utils.tree_flatten(layer.parameters()))
    assert layer.training
    assert all(mx.array_equal(before[name], after[name]) for name in before)


def test_another_reference_can_be_given():
    assert validate_attention(make(NaiveAttention), reference=FusedFlashAttention)["lengths"] < 1e-5


def test_other_objects_are_refused():
    with refused("layer", TypeError, function="validate_attention"):
        validate_attention(nn.Linear(4, 4))


def test_a_quantized_layer_is_refused_and_one_of_half_type_is_not():
    layer = make(FusedFlashAttention)
    layer.set_dtype(mx.float16)
    validate_attention(layer)
    nn.quantize(layer, group_size=32)
    with refused("layer", function="validate_attention"):
        validate_attention(layer)


class OtherProjections(FusedFlashAttention):
    def add_projections(self, bias):
        self.joined = nn.Linear(self.embed_dim, 3 * self.embed_dim, bias=bias)


def test_other_projections_are_refused():
    assert issubclass(OtherProjections, BaseAttention)
    with refused("layer", function="validate_attention"):
        validate_attention(OtherProjections(32, 4))
