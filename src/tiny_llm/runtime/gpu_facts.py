"""The GPU of this machine: name, memory and back end."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx


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
