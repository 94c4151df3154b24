"""Expected errors: their text is always `<function>: <argument>: got ..., expected ...`."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest


def refused(
    argument: str, error: type[Exception] = ValueError, function: str = "flash_attention"
) -> pytest.RaisesExc:
    """A context that must raise an error about that argument."""
    return pytest.raises(error, match=rf"^{function}: {argument}: got .+, expected .+")


def case_id(value: Any) -> str:
    """The id of a test case with this value: arrays by dtype and shape, other values shortened."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={case_id(x)}" for name, x in value.items())
    if isinstance(value, mx.array | np.ndarray):
        return f"{value.dtype}{value.shape}"
    return str(value)[:40]


def fitting_arguments(sizes: dict[str, tuple[int, ...]], wrong: dict[str, Any]) -> dict[str, Any]:
    """Arrays of zeros in those sizes; `wrong` replaces the size, the dtype or the whole argument of some."""
    arrays = {name: mx.zeros(size) for name, size in sizes.items()}
    for name, instead in wrong.items():
        if isinstance(instead, tuple):
            arrays[name] = mx.zeros(instead)
        elif isinstance(instead, mx.Dtype):
            arrays[name] = arrays[name].astype(instead)
        else:
            arrays[name] = instead
    return arrays
