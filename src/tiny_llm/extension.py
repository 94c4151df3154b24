"""Where the native kernels come from: built in place in the source tree, or from an installed package."""

import importlib
import importlib.util
from functools import cache
from types import ModuleType


@cache  # of a success only: looking for packages takes longer than a small attention
def load_extension() -> ModuleType:
    """Return `tiny_llm_ext`. Its functions say how to build it where it is not built."""
    for name in ("extensions.tiny_llm_ext", "tiny_llm_ext"):
        if _exists(name):
            return importlib.import_module(name)
    raise RuntimeError(
        "tiny_llm_ext: no such package: run `pdm run build-ext` in the source tree of tiny-llm"
    )


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package
        return False
