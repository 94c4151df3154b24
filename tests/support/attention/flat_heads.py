"""The binding of FlashAttention, whose batch and heads are one axis."""

import mlx.core as mx

from extensions import tiny_llm_ext

from ...utils import assert_rounded_once


def flat(inputs):
    """[B, H, L, E] as the binding takes it: [B * H, L, E]."""
    return [x.reshape(-1, *x.shape[2:]) for x in inputs]


def check_flat(stream, inputs, expected, mask=None, scale=0.1, is_causal=False):
    """The binding, called with the flattened inputs, equals `expected` [B, H_q, L, E]."""
    result = tiny_llm_ext.flash_attention(
        *flat(inputs),
        mask,
        scale,
        is_causal,
        num_kv_heads=inputs[1].shape[1],
        num_heads=inputs[0].shape[1],
        stream=stream,
    )
    assert_rounded_once(result, expected.reshape(-1, *expected.shape[2:]), mx.float32)
