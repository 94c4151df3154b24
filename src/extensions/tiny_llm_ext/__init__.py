"""The native kernels. `pdm run build-ext` builds them; until then every function raises an error."""

import atexit as _atexit
import importlib.util
import os as _os
from collections.abc import Callable
from typing import NoReturn

import mlx.core as _mx

_mlx_version: str = _mx.__version__  # type: ignore[attr-defined]

if importlib.util.find_spec("._ext", __name__) is not None:
    try:
        from . import _ext
    except ImportError as error:
        raise ImportError(
            f"tiny_llm_ext cannot be loaded with mlx {_mlx_version}, it was built for another version: "
            "run `pdm run build-ext`"
        ) from error
    if _ext.mlx_version != _mlx_version:
        raise ImportError(
            f"tiny_llm_ext was built for mlx {_ext.mlx_version}, but mlx {_mlx_version} is installed: "
            "run `pdm run build-ext`"
        )
    # A nanobind of another ABI version has its own registry of types, without mlx.core.array.
    if "mlx.core.array" not in (_ext.flash_attention.__doc__ or ""):
        raise ImportError(
            "tiny_llm_ext was built with a nanobind that shares no types with mlx: run `pdm run build-ext`"
        )
    from ._ext import *  # noqa: F403

    def _finish() -> None:
        _mx.synchronize(_mx.default_stream(_mx.cpu))

    # Otherwise an evaluation that still runs would crash while the interpreter shuts down. A forked child has
    # none of the threads that compute, and would wait forever.
    _atexit.register(_finish)
    if hasattr(_os, "register_at_fork"):
        _os.register_at_fork(after_in_child=lambda: _atexit.unregister(_finish))
else:

    def __getattr__(name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        def missing(*args: object, **kwargs: object) -> NoReturn:
            raise RuntimeError(
                f"{name}: the native extension is not built for this Python: run `pdm run build-ext`"
            )

        return missing
