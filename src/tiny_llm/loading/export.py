"""Writes a checkpoint with dense weights in the layout of Hugging Face, for other programs."""

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import mlx.core as mx

from ..models.weights import dense_weights, quantized_weights
from . import Checkpoint
from .progress import Progress, silent
from .weights.tree import named_parts

MAX_SHARD_BYTES = 4 * 2**30  # bytes of weights in a shard
CONFIG, INDEX = "config.json", "model.safetensors.index.json"
COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


class ExportError(Exception):
    """Nothing was written; the text is one sentence that says why."""


class DenseTensor(NamedTuple):
    """An array of the dense checkpoint, made when its shard is written."""

    name: str
    part: SimpleNamespace
    shape: tuple[int, ...]

    def make(self, dtype: mx.Dtype) -> mx.array:
        if self.name.endswith(".bias"):
            bias: mx.array = self.part.bias
            return bias.astype(dtype)
        return dense_weights(self.part, dtype)


def export_dense(
    checkpoint: Checkpoint, folder: Path, dtype: mx.Dtype = mx.float32, *, progress: Progress = silent
) -> None:
    """Write `folder`, which must be new or empty. It appears when it is complete, or not at all."""
    source = checkpoint.folder
    if source is None:
        raise ExportError(f"{checkpoint.name}: got random weights, expected a model with files of its own")
    folder = check_target(folder)
    parent = folder.parent
    files = split(dense_tensors(checkpoint.mlx_model), dtype)
    needed = sum(size(tensor, dtype) for tensors in files for tensor in tensors)
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise ExportError(f"{parent}: has {free / 1e9:.1f} GB free, the weights take {needed / 1e9:.1f} GB")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=parent) as workplace:
        unfinished = Path(workplace) / folder.name
        unfinished.mkdir()
        write_weights(unfinished, files, dtype, progress)
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


def dense_tensors(model: Any) -> Iterator[DenseTensor]:
    """The tensors of the dense checkpoint, from the parts of a loaded one."""
    for name, part in named_parts(model):
        shape = quantized_weights(part, mx.float32).shape
        yield DenseTensor(f"{name}.weight", part, shape)
        if hasattr(part, "bias"):
            yield DenseTensor(f"{name}.bias", part, part.bias.shape)


def size(tensor: DenseTensor, dtype: mx.Dtype) -> int:
    return math.prod(tensor.shape) * dtype.size


def split(tensors: Iterator[DenseTensor], dtype: mx.Dtype) -> list[list[DenseTensor]]:
    """The tensors of each shard, in order."""
    files: list[list[DenseTensor]] = [[]]
    filled = 0
    for tensor in tensors:
        filled += size(tensor, dtype)
        if files[-1] and filled > MAX_SHARD_BYTES:
            files.append([])
            filled = size(tensor, dtype)
        files[-1].append(tensor)
    return files


def write_weights(folder: Path, files: list[list[DenseTensor]], dtype: mx.Dtype, progress: Progress) -> None:
    """Write one shard after the other, so that only one is in memory; an index if there are several."""
    written: dict[str, str] = {}
    for number, tensors in enumerate(files, 1):
        progress("writing weights", number - 1, len(files))
        name = f"model-{number:05}-of-{len(files):05}.safetensors" if len(files) > 1 else "model.safetensors"
        arrays = {tensor.name: tensor.make(dtype) for tensor in tensors}
        mx.save_safetensors(str(folder / name), arrays, metadata={"format": "pt"})
        written |= dict.fromkeys(arrays, name)
    if len(files) > 1:
        total = sum(size(tensor, dtype) for tensors in files for tensor in tensors)
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": written})


def write_config(folder: Path, source: Path, dtype: mx.Dtype) -> None:
    """Write the config of `source` without its quantization."""
    config = json.loads((source / CONFIG).read_text())
    kept = {key: value for key, value in config.items() if not key.startswith("quantization")}
    # The second is the older name of the first; programs know one or the other.
    write_json(folder / CONFIG, kept | dict.fromkeys(("dtype", "torch_dtype"), str(dtype).split(".")[-1]))


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
