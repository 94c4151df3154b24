"""Peak memory of a forward and a backward pass by MLX's counter, relative to what has to exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from benches.cases.attention import Case
from benches.cases.training import LAYERS, LayerCase
from benches.contestants.training import Inputs, tiny_llm
from tiny_llm.attention import explain, flash_attention
from tiny_llm.nn import BaseAttention, get_attention

PEAK_CALLS = 5


def of_attention(case: Case, threads: int) -> tuple[int, int]:
    """Bytes at the peak, query, key and value included, and of saved tensors and gradients together."""
    inputs = Inputs(case)
    given = sum(each.nbytes for each in inputs.arrays)
    plan = explain(flash_attention, *inputs.arrays, causal=case.causal, window=case.window)
    gradients = given  # dQ, dK and dV have the sizes of query, key and value
    return given + _peak(tiny_llm(case, inputs, threads).call), plan.saved_bytes + gradients


def of_layer(case: LayerCase) -> int:
    """Bytes beyond x and the parameters."""
    layer = _layer(case)
    x = mx.random.normal((1, case.length, case.embed_dim), key=mx.random.key(0))
    mx.eval(x, layer.parameters())
    parameters = layer.trainable_parameters()

    def loss(parameters: dict[str, Any], x: mx.array) -> mx.array:
        layer.update(parameters)
        return layer(x)[0].square().sum()

    def gradients() -> Any:
        out = mx.grad(loss, argnums=(0, 1))(parameters, x)
        mx.eval(out)
        return out

    # MLX's worker frees arrays while the graph is still being encoded: a single peak may be too low.
    return max(_peak(gradients) for _ in range(PEAK_CALLS))


def _layer(case: LayerCase) -> BaseAttention:
    return get_attention(case.layer, case.embed_dim, case.heads, causal=True, **LAYERS[case.layer])


def _peak(call: Callable[[], Any]) -> int:
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    out = call()
    peak = mx.get_peak_memory() - before
    del out
    return peak
