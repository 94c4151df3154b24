"""Layers of a model: one decoder block and the token embedding of a real shape, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx

from benches.cases.arrays import exact, random_array, whole_gate
from benches.cases.plain_layers import PlainBlock
from benches.harness.contestant import Case, Contestant, Operation, evaluated, own
from benches.harness.types import DTYPES, SHORT_NAMES, Dtype
from benches.names import MLX_FLOAT32
from tiny_llm.course.dispatch import MODELS, dispatch_model
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.tree import assemble, convert_in_place
from tiny_llm.models.qkv import row_offsets

MODEL, STAGE = "qwen2-0.5b", 2
TOLERANCE = {"float32": 1e-3, "bfloat16": 4e-2}  # of several operations, each with a rounded result
LAYERS = ("block", "attention", "mlp", "norm", "rope", "embedding", "head")
DECODE_PAST, PREFILL = 512, 512


def layer_cases(group: str) -> Iterator[Case]:
    length, past = {"decode": (1, DECODE_PAST), "prefill": (PREFILL, 0)}[group]
    for dtype in DTYPES:
        for layer in LAYERS:
            if layer == "head" and length > 1:
                continue  # logits are computed for the last token only
            name = f"{SHORT_NAMES[dtype]} {layer}, {length} token{'s' if length > 1 else ''}"
            yield Case(group, name, partial(_build, dtype, layer, length, past), quick=length == 1)


def _build(dtype: Dtype, layer: str, length: int, past: int, threads: int) -> Operation:
    config = replace(random_config(MODEL), num_hidden_layers=1)
    mlx_model = assemble(config, random_weights(config, silent))
    cached = None
    if past:
        shape = (1, config.num_key_value_heads, past, config.head_dim)
        cached = random_array(shape, dtype, 2), random_array(shape, dtype, 3)
    plain = PlainBlock(config, mlx_model, cached)  # before conversion changes the type of the scales
    kind = MODELS["qwen2"][STAGE]
    convert_in_place(mlx_model, kind.ops.load_weights, getattr(mx, dtype))
    model = dispatch_model(MODEL, mlx_model, STAGE, enable_flash_attn=True, dtype=getattr(mx, dtype))
    x = _input(layer, dtype, length, config)
    call = _layer_call(layer, model, x, cached, past)
    wide = x if x.dtype == mx.uint32 else x.astype(mx.float32)
    mx.eval(wide)
    mlx = evaluated(lambda: getattr(plain, layer)(wide))
    expected = exact(mlx())
    nbytes, weights = _weights(layer, mlx_model)
    return Operation(
        dtype=dtype,
        flops=2.0 * x.size // x.shape[-1] * weights if x.dtype != mx.uint32 else 0.0,
        bytes=nbytes + 2 * x.nbytes,
        gate=whole_gate(expected.reshape(-1, expected.shape[-1]), TOLERANCE[dtype]),
        contestants=[own(call), Contestant(MLX_FLOAT32, mlx)],
    )


def _input(layer: str, dtype: Dtype, length: int, config: Any) -> mx.array:
    if layer == "embedding":
        return mx.random.randint(0, config.vocab_size, (1, length), dtype=mx.uint32, key=mx.random.key(4))
    if layer == "rope":
        return random_array((1, length, config.num_attention_heads, config.head_dim), dtype, 4)
    return random_array((1, length, config.hidden_size), dtype, 4)


def _layer_call(
    layer: str, model: Any, x: mx.array, cached: tuple[mx.array, mx.array] | None, past: int
) -> Callable[[], mx.array]:
    block = model.layers_inner[0]
    offsets = row_offsets(past, rows=1)
    simple: dict[str, Callable[[], mx.array]] = {
        "mlp": lambda: block.mlp(x),
        "norm": lambda: block.input_layernorm(x),
        "rope": lambda: block.self_attn.rope.heads_first(x, offsets),
        "embedding": lambda: model.embedding(x),
        "head": lambda: model.score(x),
    }
    if layer in simple:
        return evaluated(simple[layer])
    forward = block.forward if layer == "block" else block.self_attn.forward
    cache = TinyKvFullCache()
    if cached:
        cache.update_and_fetch(*cached)
        mx.eval(cache.storage)

    def call() -> mx.array:
        used = cache if cached else TinyKvFullCache()
        out: mx.array = forward(x, offsets, used, "causal")
        mx.eval(out)
        if cached:
            used.rewind(x.shape[1])  # the next call starts from the same state
        return out

    return call


def _weights(layer: str, mlx_model: Any) -> tuple[int, int]:
    """Bytes of the matrices that a layer reads, and the number of their elements."""
    body = mlx_model.model
    attention = [getattr(body.layers[0].self_attn, f"{name}_proj") for name in "qkvo"]
    mlp = [getattr(body.layers[0].mlp, f"{name}_proj") for name in ("gate", "up", "down")]
    parts = {"block": attention + mlp, "attention": attention, "mlp": mlp, "head": [body.embed_tokens]}
    matrices = parts.get(layer, [])
    read = sum(part.weight.nbytes + part.scales.nbytes + part.biases.nbytes for part in matrices)
    return read, sum(part.weight.size * 32 // part.bits for part in matrices)
