"""Versions, devices and speed of this installation, as one dictionary."""

import platform
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from .extension import load_extension
from .gpu import gpu_facts
from .mlx_packages import installed_libraries
from .version import version


def check_installation(*, speed: bool = True) -> dict[str, Any]:
    """Versions, devices, instruction sets and the rate of attention, or why the extension is unusable.

    Without `speed`, attention does not run.
    """
    report: dict[str, Any] = {
        "tiny_llm": version(),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "mlx": {"version": metadata.version("mlx"), "back_end": _loaded_library() or "unknown"},
        "devices": _devices(),
        "gpu": gpu_facts(),
        "extension": {"loaded": True, "reason": None},
        "warnings": _warnings(),
    }
    try:
        report["cpu"] = describe_cpu()
        if speed:
            report["attention"] = measure_attention()
    except (RuntimeError, ImportError, ValueError) as unusable:  # ValueError: TINY_LLM_CPU_ISA or _THREADS
        report["extension"] = {"loaded": False, "reason": str(unusable)}
    return report


def measure_attention() -> dict[str, Any]:
    """The rate of causal float32 attention, at a size that takes milliseconds."""
    heads, tokens, size = 8, 1024, 64
    query, key, value = mx.random.normal((3, 1, heads, tokens, size))
    seconds = [_seconds_of_causal(query, key, value) for _ in range(6)][1:]  # the first run warms up
    flops = 4 * heads * tokens**2 * size / 2
    return {
        "work": f"causal, float32, {heads} heads, {tokens} tokens, head size {size}",
        "gflops": flops / median(seconds) / 1e9,
    }


def _seconds_of_causal(query: mx.array, key: mx.array, value: mx.array) -> float:
    mx.eval(query, key, value)
    begin = time.perf_counter()
    mx.eval(load_extension().attention(query, key, value, causal=True))
    return time.perf_counter() - begin


def describe_cpu() -> dict[str, Any]:
    """Instruction sets and threads of the native kernels; raises where the extension cannot be used."""
    extension = load_extension()
    prompts, decoding = extension.cpu_threads()
    return {
        "found": extension.cpu_isas(),
        "active": extension.cpu_isa(),
        "threads": {
            "prompts": prompts,
            "decoding": decoding,
            "reason": extension.explain_cpu_threads(),
        },
    }


def _devices() -> dict[str, str]:
    available = [kind for kind in (mx.cpu, mx.gpu) if mx.is_available(kind)]
    return {kind.name: str(mx.device_info(kind)["device_name"]) for kind in available}


def _loaded_library() -> str | None:
    """The package whose MLX library is on disk: all write the same path, so the last one wins."""
    for package in installed_libraries():
        for file in metadata.files(package) or []:
            library = Path(str(file.locate()))
            if file.name in ("libmlx.so", "libmlx.dylib") and library.stat().st_size == file.size:
                return package
    return None


def _warnings() -> list[str]:
    installed = installed_libraries()
    if len(installed) < 2:
        return []
    return [f"{' and '.join(installed)} overwrite each other: uninstall all but one, then reinstall that one"]
