"""One step of small models with few layers, in tiny_llm and mlx-lm: what its graph is, as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from tiny_llm.cli.mlx_lm_backend import mlx_lm_model
from tiny_llm.course.dispatch import dispatch_model
from tiny_llm.course.model import weight_loader
from tiny_llm.loading.config import ModelConfig
from tiny_llm.loading.weights.layout import Matrix, Vector, layout
from tiny_llm.loading.weights.random_model import PACKING, random_config
from tiny_llm.loading.weights.tree import assemble, convert_in_place
from tiny_llm.models.throttle import one_graph
from tiny_llm.runtime.gpu import as_on_gpu

MODELS = ("qwen2-0.5b", "qwen2-7b", "qwen3-0.6b")
WEIGHTS = ("4-bit", "bf16")
WORK = {"decode": (128, 1), "prefill": (0, 512)}  # tokens in the cache, new tokens
DTYPE = mx.bfloat16  # of activations, and of dense weights


@dataclass(frozen=True, slots=True)
class Case:
    """A step of one model."""

    model: str
    weights: str
    work: str


def cases() -> Iterator[Case]:
    for model in MODELS:
        for weights in WEIGHTS:
            for work in WORK:
                yield Case(model, weights, work)


def our_step(case: Case, layers: int) -> list[mx.array]:
    """Logits of the last token and the arrays of the caches, by tiny_llm's model on a GPU."""
    past, new = WORK[case.work]
    tree = _checkpoint(case, layers)
    with as_on_gpu(), one_graph():
        convert_in_place(tree, weight_loader(2), DTYPE)
        model = dispatch_model(case.model, tree, 2, dtype=DTYPE, enable_flash_attn=True)
        cache = model.create_kv_cache()
        _append(cache, tree.args, past)
        mx.eval([layer.storage for layer in cache])
        logits = model.next_logits(_tokens(new), past, cache)
        return [logits, *(array for layer in cache for array in layer.storage)]


def mlx_lm_step(case: Case, layers: int) -> list[mx.array]:
    """The same of mlx-lm's model."""
    from mlx_lm.models.cache import make_prompt_cache

    past, new = WORK[case.work]
    tree = _checkpoint(case, layers)
    model = mlx_lm_model(tree, DTYPE, lambda *_: None)
    cache = make_prompt_cache(model)
    _append(cache, tree.args, past)
    mx.eval([(layer.keys, layer.values) for layer in cache])
    logits = model(_tokens(new), cache=cache)[:, -1, :]
    return [logits, *(array for layer in cache for array in (layer.keys, layer.values))]


def _append(cache: list[Any], sizes: ModelConfig, tokens: int) -> None:
    """Append keys and values of zeros to each layer."""
    zeros = mx.zeros((1, sizes.num_key_value_heads, tokens, sizes.head_dim), DTYPE)
    for layer in cache if tokens else ():
        layer.update_and_fetch(zeros, zeros)


def _tokens(count: int) -> mx.array:
    tokens = mx.zeros((1, count), mx.int32)
    mx.eval(tokens)
    return tokens


def _checkpoint(case: Case, layers: int) -> Any:
    """A checkpoint with the head size of the model, and sizes otherwise small enough to be made at once."""
    config = random_config(case.model)
    heads = 2
    small = replace(
        config,
        num_hidden_layers=layers,
        hidden_size=heads * config.head_dim,
        intermediate_size=128,
        vocab_size=64,
        num_attention_heads=heads,
        num_key_value_heads=1,
    )
    arrays: dict[str, mx.array] = {}
    for name, part in layout(small).items():
        some = _vector(part) if isinstance(part, Vector) else _matrix(part, case.weights)
        arrays |= {f"{name}.{which}": array for which, array in some.items()}
    mx.eval(arrays)
    return assemble(small, arrays)


def _vector(part: Vector) -> dict[str, mx.array]:
    return {"weight": mx.ones(part.size, DTYPE)}


def _matrix(part: Matrix, weights: str) -> dict[str, mx.array]:
    arrays = {"weight": mx.zeros((part.outputs, part.inputs), DTYPE)}
    if weights == "4-bit":
        packed = mx.quantize(arrays["weight"], PACKING.group_size, PACKING.bits)
        arrays = dict(zip(("weight", "scales", "biases"), packed, strict=True))
    return arrays | {"bias": mx.zeros(part.outputs, DTYPE)} if part.bias else arrays
