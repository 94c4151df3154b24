"""mlx-lm's own Qwen2 and Qwen3 with the weights of one of our checkpoints, computing in float32."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn


def peer(checkpoint: SimpleNamespace) -> Any:
    """The peer's model; every scale, bias and norm of it is float32."""
    from mlx_lm.models import qwen2, qwen3

    module = {"qwen2": qwen2, "qwen3": qwen3}[checkpoint.args.model_type]
    model = module.Model(module.ModelArgs.from_dict(vars(checkpoint.args)))
    embedding = checkpoint.model.embed_tokens
    if hasattr(embedding, "scales"):
        nn.quantize(model, embedding.group_size, embedding.bits)
    model.load_weights(list(_arrays(checkpoint)))
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model


def _arrays(node: Any, path: str = "") -> Any:
    """Every array below `node` with the name that a checkpoint file gives it."""
    if isinstance(node, mx.array):
        yield path, node
    elif isinstance(node, SimpleNamespace | list):
        children = enumerate(node) if isinstance(node, list) else vars(node).items()
        for name, child in children:
            if name != "args":
                yield from _arrays(child, f"{path}.{name}".lstrip("."))
