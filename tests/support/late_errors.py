"""Evaluations that fail because of values that were not yet known at the call."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from .refusal import refused
from .tolerance import to_float64


def fails_whenever_evaluated(
    call: Callable[[], list[mx.array]], argument: str, function: str = "flash_attention"
) -> None:
    """Each evaluation of the arrays of `call`, and each read of one, raises an error about the argument."""
    arrays = call()
    for _ in range(3):
        with refused(argument, RuntimeError, function):
            mx.eval(arrays)
        for x in arrays:
            with refused(argument, RuntimeError, function):
                to_float64(x)
