"""Our layers, as a model has them: one block and the table of a real shape, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import mlx.core as mx
from tiny_llm.loading.weights.tree import assemble

from benches.cases.attention import DTYPES, SHORT_NAMES, Dtype
from benches.cases.plain_layers import PlainBlock
from benches.contestants.attention import OURS
from benches.harness.operation import Case, Operation, evaluated, exact, random_array, sampled
from tiny_llm.course.dispatch import MODELS, dispatch_model
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.tree import convert_in_place
from tiny_llm.models.positions import row_offsets

MODEL, STAGE = "qwen2-0.5b", 2
MLX = "mlx f32"
TOLERANCE = {"float32": 1e-3, "bfloat16": 4e-2}  # of several operations, each of which rounds its result
LAYERS = ("block", "attention", "mlp", "norm", "rope", "embedding", "head")
DECODE_PAST, PREFILL = 512, 512


def layer_cases(group: str) -> Iterator[Case]:
    length, past = {"decode": (1, DECODE_PAST), "prefill": (PREFILL, 0)}[group]
    for dtype in DTYPES:
        for layer in LAYERS:
            if layer == "head" and length > 1:
                continue  # scores are asked for behind the last token only
            name = f"{SHORT_NAMES[dtype]} {layer}, {length} token{'s' if length > 1 else ''}"
            yield Case(group, name, partial(_build, dtype, layer, length, past), quick=length == 1)


def _build(dtype: Dtype, layer: str, length: int, past: int, threads: int) -> Operation:
    config = replace(random_config(MODEL), num_hidden_layers=1)
    mlx_model = assemble(config, random_weights(config, silent))
    cached = None
    if past:
        shape = (1, config.num_key_value_heads, past, config.head_dim)
        cached = random_array(shape, dtype, 2), random_array(shape, dtype, 3)
    plain = PlainBlock(config, mlx_model, cached)  # before its scales take another type
    kind = MODELS["qwen2"][STAGE]
    convert_in_place(mlx_model, kind.ops.read, getattr(mx, dtype))
    model = dispatch_model(MODEL, mlx_model, STAGE, enable_flash_attn=True, dtype=getattr(mx, dtype))
    x = _input(layer, dtype, length, config)
    ours = _ours(layer, model, x, cached, past)
    wide = x if x.dtype == mx.uint32 else x.astype(mx.float32)
    mx.eval(wide)
    mlx = evaluated(lambda: getattr(plain, layer)(wide))
    right = exact(mlx())
    right = right.reshape(-1, right.shape[-1])
    sample = sampled(*right.shape, most_rows=len(right), most_columns=right.shape[1])
    weights = _weight_bytes(layer, mlx_model, x)
    return Operation(
        dtype=dtype,
        flops=2.0 * x.size // x.shape[-1] * weights[1] if x.dtype != mx.uint32 else 0.0,
        bytes=weights[0] + 2 * x.nbytes,
        calls={OURS: ours, MLX: mlx},
        sample=sample,
        expected=right,
        tolerance=TOLERANCE[dtype],
    )


def _input(layer: str, dtype: Dtype, length: int, config: Any) -> mx.array:
    if layer == "embedding":
        return mx.random.randint(0, config.vocab_size, (1, length), dtype=mx.uint32, key=mx.random.key(4))
    if layer == "rope":
        return random_array((1, length, config.num_attention_heads, config.head_dim), dtype, 4)
    return random_array((1, length, config.hidden_size), dtype, 4)


def _ours(
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
        own = cache if cached else TinyKvFullCache()
        out: mx.array = forward(x, offsets, own, "causal")
        mx.eval(out)
        if cached:
            own.rewind(x.shape[1])  # the next call finds what this one found
        return out

    return call


def _weight_bytes(layer: str, mlx_model: Any, x: mx.array) -> tuple[int, int]:
    """Bytes of the matrices that a layer reads, and how many numbers they hold."""
    body = mlx_model.model
    attention = [getattr(body.layers[0].self_attn, f"{name}_proj") for name in "qkvo"]
    mlp = [getattr(body.layers[0].mlp, f"{name}_proj") for name in ("gate", "up", "down")]
    parts = {"block": attention + mlp, "attention": attention, "mlp": mlp, "head": [body.embed_tokens]}
    matrices = parts.get(layer, [])
    read = sum(part.weight.nbytes + part.scales.nbytes + part.biases.nbytes for part in matrices)
    return read, sum(part.weight.size * 32 // part.bits for part in matrices)
