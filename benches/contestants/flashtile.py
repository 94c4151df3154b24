"""Attention layers with and without projections: tiny_llm's variants, the whole score matrix, and MLX."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn
import numpy as np

from benches.cases.flashtile import Case
from benches.contestants.attention import TOLERANCE, attend_in_float64
from benches.harness.contestant import Contestant, evaluated
from benches.harness.gate import Float64, Gate, to_numpy
from benches.names import GQA, MX_FAST, NAIVE, TINY_LLM, V1
from tiny_llm.nn import (
    BaseAttention,
    FlashAttentionV1,
    FlashAttentionV2,
    GroupedQueryAttention,
    NaiveAttention,
    TiledAttention,
)

POSITIONS = 16  # of the last sequence, compared with float64


class FastAttention(TiledAttention):
    """The layer with `mx.fast.scaled_dot_product_attention` in it."""

    def attend(self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None) -> mx.array:
        shown = "causal" if self.causal else None
        return mx.fast.scaled_dot_product_attention(query, key, value, scale=self.scale, mask=shown)


LAYERS: dict[str, type[BaseAttention]] = {
    TINY_LLM: FlashAttentionV2,
    V1: FlashAttentionV1,
    MX_FAST: FastAttention,
    NAIVE: NaiveAttention,
}
DENSE = (MX_FAST, NAIVE)  # on a CPU these hold all scores


class Inputs:
    """x, drawn from N(0, 1) with a fixed seed, and layers with the same weights."""

    def __init__(self, case: Case) -> None:
        mx.random.seed(0)
        sizes = (case.embed_dim, case.heads)
        self.x = mx.random.normal((case.batch, case.length, case.embed_dim))
        self.layers = {name: layer(*sizes, causal=case.causal) for name, layer in LAYERS.items()}
        for layer in self.layers.values():
            layer.update(self.layers[TINY_LLM].parameters())
        if case.group == "module":
            self.layers[GQA] = GroupedQueryAttention(*sizes, case.kv_heads, causal=case.causal)
        dtype = getattr(mx, case.dtype)
        self.x = self.x.astype(dtype)
        for layer in self.layers.values():
            layer.set_dtype(dtype)
        self.heads = self.layers[TINY_LLM].project(self.x)
        mx.eval(self.x, self.heads, [layer.parameters() for layer in self.layers.values()])


def contestant(case: Case, inputs: Inputs, name: str) -> Contestant:
    """One layer on x, or its attention alone on the heads of x."""
    layer = inputs.layers[name]
    build: Callable[[], mx.array] = lambda: layer(inputs.x)[0]  # noqa: E731
    if case.group == "attention":
        build = _attention(case, inputs, layer)
    own_gate = gate(case, inputs, name) if name == GQA else None
    return Contestant(name, evaluated(build), baseline=name in DENSE, gate=own_gate)


def _attention(case: Case, inputs: Inputs, layer: BaseAttention) -> Callable[[], mx.array]:
    if isinstance(layer, TiledAttention):
        tiled = layer
        return lambda: tiled.attend(*inputs.heads, None)
    hidden = mx.triu(mx.full((case.length, case.length), -mx.inf), 1) if case.causal else mx.array(0.0)

    def whole() -> mx.array:
        query, key, value = (x.astype(mx.float32) for x in inputs.heads)
        scores = query * layer.scale @ key.swapaxes(-1, -2) + hidden
        return (mx.softmax(scores, axis=-1) @ value).astype(inputs.x.dtype)

    return whole


def gate(case: Case, inputs: Inputs, name: str = TINY_LLM) -> Gate:
    """Compares some positions of the last sequence with float64."""
    positions = np.unique(np.linspace(0, case.length - 1, min(case.length, POSITIONS)).astype(np.int64))
    last, tolerance = case.batch - 1, TOLERANCE[case.dtype]
    hidden = (np.arange(case.length) > positions[:, None]) & case.causal
    if case.group == "attention":
        query, key, value = (to_numpy(x[last]) for x in inputs.heads)
        expected = attend_in_float64(query[:, positions], key, value, hidden).reshape(-1, case.head_dim)
        rows = ((last * case.heads + np.arange(case.heads))[:, None] * case.length + positions).reshape(-1)
        shape = (case.batch * case.heads * case.length, case.head_dim)
        return Gate(shape, rows, np.arange(case.head_dim), expected, tolerance)
    layer = inputs.layers[name]
    query, key, value = _heads_in_float64(case, layer, to_numpy(inputs.x[last]).astype(np.float64))
    out = attend_in_float64(query[:, positions], key, value, hidden)  # [heads, positions, D]
    merged = out.swapaxes(0, 1).reshape(len(positions), -1)
    expected = _linear(layer.out_proj, merged)
    shape = (case.batch * case.length, case.embed_dim)
    columns = np.arange(case.embed_dim)
    return Gate(shape, last * case.length + positions, columns, expected, tolerance)


def _heads_in_float64(case: Case, layer: BaseAttention, x: Float64) -> tuple[Float64, Float64, Float64]:
    if isinstance(layer, GroupedQueryAttention):
        parts = [_linear(each, x) for each in (layer.q_proj, layer.k_proj, layer.v_proj)]
    else:
        parts = np.split(_linear(layer.qkv_proj, x), 3, axis=1)
    query, key, value = (part.reshape(case.length, -1, case.head_dim).swapaxes(0, 1) for part in parts)
    return query, key, value


def _linear(layer: mlx.nn.Linear, x: Float64) -> Float64:
    result: Float64 = x @ to_numpy(layer.weight).astype(np.float64).T + to_numpy(layer.bias)
    return result
