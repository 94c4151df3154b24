"""The folder in which MLX keeps the CUDA kernels that it has compiled, for later processes.

Metal keeps its compiled kernels itself, and the CPU compiles nothing at run time.
"""

from collections.abc import Mapping
from os import environ
from pathlib import Path

import mlx.core as mx

from .gpu import is_cuda

FOLDER = "MLX_PTX_CACHE_DIR"
TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")  # in the order of C++'s temp_directory_path


def kernel_cache() -> Path | None:
    """MLX's folder of compiled kernels; None where MLX's default device has none."""
    if mx.default_device().type != mx.gpu or not is_cuda():
        return None
    return cache_folder(environ, mx.__version__)  # type: ignore[attr-defined]


def cache_folder(environment: Mapping[str, str], version: str) -> Path | None:
    """Where this version of MLX keeps its kernels; the folder may not exist yet. None if caching is off."""
    if FOLDER in environment:
        return Path(environment[FOLDER]) if environment[FOLDER] else None
    temporary = next((environment[name] for name in TEMPORARY if name in environment), "/tmp")
    return Path(temporary, "mlx", version, "ptx")


def count_kernels(folder: Path) -> int:
    """The number of compiled modules in the folder, each of one or more kernels."""
    return sum(1 for _ in folder.rglob("*.ptx"))


def must_compile(folder: Path | None) -> bool:
    """Whether the cache is empty, so that a model's first answer compiles all its kernels."""
    return folder is not None and count_kernels(folder) == 0
