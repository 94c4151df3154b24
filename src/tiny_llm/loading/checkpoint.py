"""`load`: from the name of a model to its weights in memory. All checks come before the weights are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..checks.types import check_type
from ..runtime.ranks import Division, Ranks
from .adapters import check_adapters
from .config import ModelConfig, read_config
from .errors import LoadError
from .find import EMBEDDED, folder_of, random_shortcut
from .progress import Progress, silent
from .tokenizer.read_tokenizer import read_tokenizer
from .tokenizer.tokenizer import Tokenizer
from .weights.random_model import random_config, random_weights
from .weights.read import load_weights, read_tensors
from .weights.share import share_of
from .weights.tree import assemble


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
    name = _as_text(name)
    with _naming(name):
        if random_shortcut(name) is not None:
            raise LoadError("a random model has no folder")
        return folder_of(name, offline, progress or silent)


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
    name = _as_text(name)
    with _naming(name):
        shortcut = random_shortcut(name)
        if shortcut is not None:
            return _random_checkpoint(name, shortcut, report, bytes_per_weight, ranks)
        folder = folder_of(name, offline, report)
    with _naming(name if str(folder) == name else f"{name} ({folder})"):
        check_adapters(folder)
        config = read_config(folder)
        tensors = read_tensors(folder)
        tokenizer = read_tokenizer(folder, config)
        share = share_of(config, ranks)
        arrays = load_weights(config, tensors, report, bytes_per_weight, share)
        return _checkpoint(name, folder, share.config, tokenizer, arrays, ranks)


def check_ranks(
    name: str | Path,
    kind: Division,
    size: int,
    *,
    offline: bool | None = None,
    progress: Progress | None = None,
) -> None:
    """LoadError for a model that cannot be divided among so many ranks; it is downloaded if necessary."""
    name = _as_text(name)
    with _naming(name):
        shortcut = random_shortcut(name)
        if shortcut is None:
            config = read_config(folder_of(name, offline, progress or silent))
        else:
            config = random_config(shortcut)
        for rank in range(size):
            share_of(config, Ranks(kind, rank, size, None))


def load_tokenizer(name: str | Path, *, offline: bool | None = None) -> Any:
    """The tokenizer of a model, without its weights; a random model has that of the embedded one."""
    name = _as_text(name)
    with _naming(name):
        folder = EMBEDDED if random_shortcut(name) is not None else folder_of(name, offline, silent)
        return read_tokenizer(folder, read_config(folder))


def _as_text(name: str | Path) -> str:
    check_type("load", "name", name, str | Path, "a str or a Path")
    return str(name) if str(name) else "''"


def _random_checkpoint(
    name: str, shortcut: str, progress: Progress, bytes_per_weight: float | None, ranks: Ranks | None
) -> Checkpoint:
    config = random_config(shortcut)
    share = share_of(config, ranks)
    tokenizer = read_tokenizer(EMBEDDED, config)  # that of the embedded model stands in
    arrays = random_weights(config, progress, bytes_per_weight, share)
    return _checkpoint(name, None, share.config, tokenizer, arrays, ranks)


def _checkpoint(
    name: str,
    folder: Path | None,
    config: ModelConfig,
    tokenizer: Tokenizer,
    arrays: dict[str, mx.array],
    ranks: Ranks | None,
) -> Checkpoint:
    nbytes = sum(array.nbytes for array in arrays.values())
    model = assemble(config, arrays)
    model.ranks = ranks
    return Checkpoint(name, folder, config, model, tokenizer, nbytes)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of the model at the beginning of a LoadError."""
    try:
        yield
    except LoadError as error:
        raise LoadError(f"{name}: {error}") from error
