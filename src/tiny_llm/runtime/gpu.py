"""Whether the layers compute with MLX's fused operations, as they do on a GPU, and which GPU it is."""

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx

_GPU = mx.Device(mx.gpu)
_pretended = False


def computes_on_gpu() -> bool:
    """Whether MLX's default device is a GPU."""
    return _pretended or mx.default_device() == _GPU


def is_cuda() -> bool:
    """Whether the GPU of this process is one of NVIDIA's."""
    return mx.is_available(mx.gpu) and not mx.metal.is_available()


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """A block in which all layers take the operations of a GPU, on any device: to test and count them."""
    global _pretended
    before, _pretended = _pretended, True
    try:
        yield
    finally:
        _pretended = before
