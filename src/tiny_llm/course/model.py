"""From a name to a runnable model of a week: a checkpoint, and a model class on its weights."""

from pathlib import Path
from typing import Any

import mlx.core as mx

from ..loading.checkpoint import Checkpoint, load
from ..loading.progress import Progress
from ..loading.weights.tree import convert_in_place
from ..models.ops import LoadWeights
from ..models.weights import dense_weights
from ..runtime.ranks import Ranks
from .dispatch import MODELS, dispatch_model


def load_model(
    name: str | Path,
    dtype: mx.Dtype,
    *,
    week: int = 2,
    offline: bool | None = None,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
    **options: Any,
) -> tuple[Any, Checkpoint]:
    """Load a checkpoint by name, and build the model of a week on its weights, which are in memory once.

    `dtype` is the type of the activations; `options`, such as `enable_flash_attn`, are passed to the model
    class.
    """
    unpacked = dtype.size if weight_loader(week) is dense_weights else None
    checkpoint = load(name, offline=offline, progress=progress, bytes_per_weight=unpacked, ranks=ranks)
    return build_model(checkpoint, dtype, week=week, **options), checkpoint


def build_model(checkpoint: Checkpoint, dtype: mx.Dtype, *, week: int = 2, **options: Any) -> Any:
    """The model of a week on the weights of a checkpoint, which are converted in place."""
    convert_in_place(checkpoint.mlx_model, weight_loader(week), dtype)
    return dispatch_model(checkpoint.name, checkpoint.mlx_model, week, dtype=dtype, **options)


def weight_loader(week: int) -> LoadWeights:
    """The function that loads a layer's weights for the models of a week."""
    family, *_ = MODELS.values()  # all families load weights alike
    return family[week].ops.load_weights
