"""mlx-lm's own Qwen2 and Qwen3, loaded by mlx-lm from a folder, computing in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx


def peer(folder: Path) -> Any:
    """The peer's model; every scale, bias and norm of it is float32."""
    from mlx_lm.utils import load_model

    model, _ = load_model(folder, lazy=True)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model
