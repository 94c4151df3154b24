"""Writes a checkpoint with dense weights in the layout of Hugging Face, for other programs."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx

from ..models.weights import dense_weights, quantized_weights
from . import Checkpoint
from .progress import Progress, silent
from .weights.tree import named_parts

if TYPE_CHECKING:
    from huggingface_hub import StateDictSplit

MAX_SHARD_BYTES = 4 * 2**30  # bytes of weights in a shard
CONFIG, INDEX = "config.json", "model.safetensors.index.json"
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


class ExportError(Exception):
    """Nothing was written; the text is one sentence that says why."""


class DenseTensor(NamedTuple):
    """An array of the dense checkpoint, made when its shard is written."""

    shape: tuple[int, ...]
    make: Callable[[mx.Dtype], mx.array]


def export_dense(
    checkpoint: Checkpoint, folder: Path, dtype: mx.Dtype = mx.float32, *, progress: Progress = silent
) -> None:
    """Write `folder`, which must be new or empty. It appears when it is complete, or not at all."""
    source = checkpoint.folder
    if source is None:
        raise ExportError(f"{checkpoint.name}: got random weights, expected a model with files of its own")
    folder = check_target(folder)
    parent = folder.parent
    tensors = dense_tensors(checkpoint.mlx_model)
    from huggingface_hub import split_state_dict_into_shards_factory  # slow to import

    shards = split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=lambda tensor: math.prod(tensor.shape) * dtype.size,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=MAX_SHARD_BYTES,
    )
    needed = shards.metadata["total_size"]
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise ExportError(f"{parent}: has {free / 1e9:.1f} GB free, the weights take {needed / 1e9:.1f} GB")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=parent) as workplace:
        unfinished = Path(workplace) / folder.name
        unfinished.mkdir()
        write_weights(unfinished, tensors, shards, dtype, progress)
        write_config(unfinished, source, dtype)
        for name in COPIED:
            if (source / name).exists():
                shutil.copyfile(source / name, unfinished / name)
        unfinished.replace(folder)


def check_target(folder: Path) -> Path:
    """The resolved path of `folder`; ExportError if nothing can be written there."""
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{folder}: already exists and is not empty")
    if not target.parent.is_dir():
        raise ExportError(f"{target.parent}: is not a directory; create it first")
    return target


def dense_tensors(model: Any) -> dict[str, DenseTensor]:
    """The tensors of the dense checkpoint by name, from the parts of a loaded one."""
    tensors = {}
    for name, part in named_parts(model):
        shape = quantized_weights(part, mx.float32).shape
        tensors[f"{name}.weight"] = DenseTensor(shape, partial(dense_weights, part))
        if hasattr(part, "bias"):
            tensors[f"{name}.bias"] = DenseTensor(part.bias.shape, part.bias.astype)
    return tensors


def write_weights(
    folder: Path,
    tensors: dict[str, DenseTensor],
    shards: StateDictSplit,
    dtype: mx.Dtype,
    progress: Progress,
) -> None:
    """Write one shard after the other, so that only one is in memory; an index if there are several."""
    files = shards.filename_to_tensors
    for number, (file, names) in enumerate(files.items()):
        progress("writing weights", number, len(files))
        arrays = {name: tensors[name].make(dtype) for name in names}
        mx.save_safetensors(str(folder / file), arrays, metadata={"format": "pt"})
    if shards.is_sharded:
        index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
        write_json(folder / INDEX, index)


def write_config(folder: Path, source: Path, dtype: mx.Dtype) -> None:
    """Write the config of `source` without its quantization."""
    config = json.loads((source / CONFIG).read_text())
    kept = {key: value for key, value in config.items() if not key.startswith("quantization")}
    # The second is the older name of the first; programs know one or the other.
    write_json(folder / CONFIG, kept | dict.fromkeys(("dtype", "torch_dtype"), str(dtype).split(".")[-1]))


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
