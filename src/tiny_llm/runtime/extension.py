"""The native module: built in place in the source tree, or from an installed package."""

import importlib
import importlib.util
from functools import cache
from types import ModuleType

import mlx.core as mx

from ..checks.arrays import FLOAT_DTYPES
from ..errors import ArgumentError
from .gpu import computes_on_gpu


@cache  # successes only; the search takes longer than a small attention call
def load_extension() -> ModuleType:
    """The package `tiny_llm_ext`. If it is not built, its functions raise an error with the build command."""
    for name in ("extensions.tiny_llm_ext", "tiny_llm_ext"):
        if _exists(name):
            return _with_our_errors(importlib.import_module(name))
    raise RuntimeError(
        "tiny_llm_ext: no such package: run `pdm run build-ext` in the source tree of tiny-llm"
    )


def cpu_kernels(dtype: mx.Dtype) -> ModuleType | None:
    """`tiny_llm_ext` if it is built, has kernels for `dtype`, and layers compute on the CPU; else None.

    With None, a layer runs its readable form, which is made of MLX's operations.
    """
    return None if dtype not in FLOAT_DTYPES or computes_on_gpu() else _built_extension()


@cache  # a later build is seen only by a new process
def _built_extension() -> ModuleType | None:
    try:
        extension = load_extension()
    except RuntimeError:
        return None
    return extension if hasattr(extension, "_ext") else None


def _with_our_errors(extension: ModuleType) -> ModuleType:
    """Make the native functions raise `ArgumentError`; older builds lack the hook."""
    use = getattr(getattr(extension, "_ext", None), "_set_argument_error", None)
    if use is not None:
        use(ArgumentError)
    return extension


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package
        return False
