"""The GPU of this machine: name, memory, whether layers use its operations, and which attention suits it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

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


def gpu_facts() -> dict[str, Any] | None:
    """The facts of MLX's GPU; None where it has none."""
    return describe_gpu(mx.device_info(mx.gpu)) if mx.is_available(mx.gpu) else None


def describe_gpu(info: Mapping[str, str | int]) -> dict[str, Any]:
    """The facts in `mx.device_info`, whose keys depend on the back end.

    `available_memory_bytes` is what is free now on CUDA. On Metal, where GPU and CPU share the memory, it is
    the recommended maximum of a working set.
    """
    cuda = "total_memory" in info
    return {
        "name": info["device_name"],
        "back_end": "CUDA" if cuda else "Metal",
        "architecture": info["architecture"],
        "memory_bytes": info.get("total_memory" if cuda else "memory_size"),
        "available_memory_bytes": info.get("free_memory" if cuda else "max_recommended_working_set_size"),
    }


def gpu_line(facts: Mapping[str, Any]) -> str:
    """The facts in one line."""
    sizes = {"of memory": facts["memory_bytes"], "available": facts["available_memory_bytes"]}
    memory = [f"{size / 1e9:.1f} GB {name}" for name, size in sizes.items() if size is not None]
    return ", ".join([facts["name"], f"{facts['back_end']} back end", facts["architecture"], *memory])
