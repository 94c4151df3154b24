"""Whether layers compute with the operations of a GPU, which GPU it is, and which attention suits it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import mlx.core as mx

# True: FlashAttention in our kernel, on CUDA in MLX's; "mlx": MLX's operation; False: grouped attention.
AttentionChoice = bool | Literal["mlx"]

# The Apple chips, such as "M2", on which a report of `pdm run check-mac` has shown our kernel to be faster
# than MLX's. No report has been sent so far.
OURS_IS_FASTER: frozenset[str] = frozenset()

_pretended = False


def computes_on_gpu() -> bool:
    """Whether MLX's default device is a GPU."""
    return _pretended or mx.default_device().type == mx.gpu


def is_cuda() -> bool:
    """Whether the GPU of this process is one of NVIDIA's."""
    return mx.is_available(mx.gpu) and not mx.metal.is_available()


def default_attention() -> AttentionChoice:
    """The attention of a model on MLX's default device, if nobody asks for another."""
    on_metal = mx.metal.is_available() and computes_on_gpu()
    return attention_on(str(mx.device_info(mx.gpu)["device_name"]) if on_metal else None)


def attention_on(apple_gpu: str | None) -> AttentionChoice:
    """The attention for a GPU with a name like "Apple M2 Max"; None is any other device."""
    return "mlx" if apple_gpu is not None and OURS_IS_FASTER.isdisjoint(apple_gpu.split()) else True


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """A block in which all layers take the operations of a GPU, on any device: to test and count them."""
    global _pretended
    before, _pretended = _pretended, True
    try:
        yield
    finally:
        _pretended = before
