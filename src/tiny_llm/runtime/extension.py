"""Where the native kernels come from: built in place in the source tree, or from an installed package."""

import importlib
import importlib.util
from functools import cache
from types import ModuleType

import mlx.core as mx

from ..errors import ArgumentError

_KERNEL_DTYPES = (mx.bfloat16, mx.float16, mx.float32)
_CPU = mx.Device(mx.cpu)


@cache  # of a success only: looking for packages takes longer than a small attention
def load_extension() -> ModuleType:
    """Return `tiny_llm_ext`. Its functions say how to build it where it is not built."""
    for name in ("extensions.tiny_llm_ext", "tiny_llm_ext"):
        if _exists(name):
            return _with_our_errors(importlib.import_module(name))
    raise RuntimeError(
        "tiny_llm_ext: no such package: run `pdm run build-ext` in the source tree of tiny-llm"
    )


def cpu_kernels(dtype: mx.Dtype) -> ModuleType | None:
    """Return `tiny_llm_ext` where a layer may use it for arrays of that type, else None.

    It is built, has kernels for the type, and MLX runs on the CPU by default. Elsewhere a layer is made of
    MLX's operations: its readable form.
    """
    return _built_extension() if dtype in _KERNEL_DTYPES and mx.default_device() == _CPU else None


@cache  # what is not built now is built by another process, and found by the next one
def _built_extension() -> ModuleType | None:
    try:
        extension = load_extension()
    except RuntimeError:
        return None
    return extension if hasattr(extension, "_ext") else None


def _with_our_errors(extension: ModuleType) -> ModuleType:
    """Let the native functions raise `ArgumentError`, where the build knows how to."""
    use = getattr(getattr(extension, "_ext", None), "_set_argument_error", None)
    if use is not None:
        use(ArgumentError)
    return extension


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package
        return False
