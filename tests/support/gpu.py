"""The operations of a GPU: on MLX's GPU, and on the CPU where MLX has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

from tiny_llm.runtime.gpu import as_on_gpu

DEVICE_NAME = "gpu" if mx.is_available(mx.gpu) else "cpu"


@contextmanager
def on_a_gpu() -> Iterator[None]:
    """A block in which layers take the operations of a GPU."""
    with as_on_gpu(), mx.stream(getattr(mx, DEVICE_NAME)):
        yield
