"""`load`: from the name of a model to its weights in memory. All checks come before the weights are read."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks.types import check_type
from ..errors import LoadError
from ..runtime.ranks import Division, Ranks
from .config import NAME as CONFIG
from .config import ModelConfig, read_config
from .find import EMBEDDED, find_source
from .progress import Progress, silent
from .tokenizer.read_tokenizer import read_tokenizer
from .weights.random_model import random_config, random_weights
from .weights.read import load_weights, read_tensors
from .weights.share import share_of
from .weights.tree import assemble

# LoRA adapters of mlx-lm, and of PEFT.
ADAPTERS = ("adapters.safetensors", "adapter_model.safetensors", "adapter_model.bin")
MERGE = "merge it into the weights of its model, as `mlx_lm.fuse` does"


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model; `mlx_model` is the argument of `dispatch_model`."""

    name: str
    folder: Path | None  # None for a random model
    config: ModelConfig
    mlx_model: Any
    tokenizer: Any
    nbytes: int


def find_folder(name: str | Path, *, offline: bool | None = None, progress: Progress | None = None) -> Path:
    """The folder of a model, downloaded if necessary.

    `offline` forbids the network; None leaves that to HF_HUB_OFFLINE.
    """
    with _naming(name) as text:
        source = find_source(text, offline, progress or silent)
        if isinstance(source, str):
            raise LoadError("a random model has no folder")
        return source


def load(
    name: str | Path,
    *,
    offline: bool | None = None,
    progress: Progress | None = None,
    bytes_per_weight: float | None = None,
    ranks: Ranks | None = None,
) -> Checkpoint:
    """Load a model: `tiny`, a shortcut, a name of the hub, a folder, or `random:<shortcut>`.

    A model that does not fit into memory is a LoadError. A LoRA adapter in the folder is not applied, with a
    warning. A caller that will make a copy of the weights in another form gives its `bytes_per_weight`, 4 for
    float32. One of several `ranks` loads its share only.
    """
    report = progress or silent
    with _naming(name) as text:
        source = find_source(text, offline, report)
    with _naming(text if str(source) == text or isinstance(source, str) else f"{text} ({source})"):
        if isinstance(source, str):
            folder, config = None, random_config(source)
            tokenizer = read_tokenizer(EMBEDDED, config)  # that of the embedded model stands in
            share = share_of(config, ranks)
            arrays = random_weights(config, report, bytes_per_weight, share)
        else:
            folder = source
            _check_adapters(folder)
            config, tensors = read_config(folder), read_tensors(folder)
            tokenizer = read_tokenizer(folder, config)
            share = share_of(config, ranks)
            arrays = load_weights(config, tensors, report, bytes_per_weight, share)
    config = share.config.in_memory
    model = assemble(config, arrays)
    model.ranks = ranks
    nbytes = sum(array.nbytes for array in arrays.values())
    return Checkpoint(text, folder, config, model, tokenizer, nbytes)


def check_ranks(
    name: str | Path,
    kind: Division,
    size: int,
    *,
    offline: bool | None = None,
    progress: Progress | None = None,
) -> None:
    """LoadError for a model that cannot be divided among so many ranks; it is downloaded if necessary."""
    with _naming(name) as text:
        source = find_source(text, offline, progress or silent)
        config = random_config(source) if isinstance(source, str) else read_config(source)
        for rank in range(size):
            share_of(config, Ranks(kind, rank, size, None))


def load_tokenizer(name: str | Path, *, offline: bool | None = None) -> Any:
    """The tokenizer of a model, without its weights; a random model has that of the embedded one."""
    with _naming(name) as text:
        source = find_source(text, offline, silent)
        folder = EMBEDDED if isinstance(source, str) else source
        return read_tokenizer(folder, read_config(folder))


def _check_adapters(folder: Path) -> None:
    """Warn of an adapter beside a model; LoadError for an adapter alone."""
    for name in ADAPTERS:
        if not (folder / name).exists():
            continue
        if not (folder / CONFIG).exists():
            raise LoadError(f"{name}: is a LoRA adapter without a model; {MERGE}, and give that folder")
        warnings.warn(f"{folder / name}: a LoRA adapter is not applied; {MERGE}", stacklevel=3)


@contextmanager
def _naming(name: str | Path) -> Iterator[str]:
    """The name of a model as text, which is put at the beginning of a LoadError."""
    check_type("load", "name", name, str | Path, "a str or a Path")
    text = str(name) or "''"
    try:
        yield text
    except LoadError as error:
        raise LoadError(f"{text}: {error}") from error
