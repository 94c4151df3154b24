"""mlx-lm's own models, loaded by mlx-lm from a folder, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx


def peer(folder: Path) -> Any:
    """The model of mlx-lm with all scales, biases and norms in float32."""
    from mlx_lm.utils import load_model

    model, _ = load_model(folder, lazy=True)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model
