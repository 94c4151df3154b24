"""Evaluations that fail because of what an array holds, on a thread of their own.

On the first thread, MLX may raise what its worker met while it still hands out work. Such an evaluation stays
half done, so that reading its arrays starts it again, and the tasks it lost count of block MLX for good once
they are ten. On any other thread the error comes at the end and leaves what the worker left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx

from .refusal import refused
from .tolerance import Float64, to_float64


def read_after_failure(
    call: Callable[[], list[mx.array]], argument: str, function: str = "flash_attention"
) -> list[Float64]:
    """What reading the arrays of `call` gives once their evaluation has failed because of that argument."""
    mx.synchronize()  # makes this the first thread, whichever tests ran before

    def evaluate() -> list[Float64]:
        with mx.stream(mx.new_stream(mx.cpu)):
            arrays = call()  # a graph belongs to the thread that built it
            with refused(argument, RuntimeError, function):
                mx.eval(arrays)
            return [to_float64(x) for x in arrays]

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(evaluate).result()
