"""The device that computes, and the type of activations that suits it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mlx.core as mx

from ..checks.arrays import FLOAT_DTYPES, dtype_name
from ..checks.types import check_text, check_type
from ..errors import ArgumentError, UnsupportedError
from .device_turns import DeviceTurns
from .extension import load_extension
from .memory import memory_errors
from .mlx_packages import CPU_ONLY, installed_libraries

DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu}
DTYPES = {dtype_name(dtype): dtype for dtype in FLOAT_DTYPES}
AUTO = "auto"
TURNS = DeviceTurns()
_process: int | None = None  # in which MLX has computed
BFLOAT16_ISAS = {"avx512bf16", "amx"}  # instruction sets that multiply bfloat16


def device_name(function: str, requested: str = AUTO) -> str:
    """Check the name of a device; "auto" becomes "gpu" where MLX has one, else "cpu"."""
    check_text(function, "device", requested)
    found = mx.is_available(mx.gpu)
    if requested == AUTO:
        return "gpu" if found else "cpu"
    if requested not in list(DEVICES):
        raise ArgumentError(function, "device", repr(requested), f"one of {', '.join([AUTO, *DEVICES])}")
    if requested == "gpu" and not found:
        raise ArgumentError(function, "device", requested, f"cpu: {why_no_gpu(installed_libraries())}")
    return requested


def why_no_gpu(packages: Sequence[str]) -> str:
    """Why MLX has no GPU, given its installed packages."""
    if packages == [CPU_ONLY]:
        return f"{CPU_ONLY} uses no GPU; for one of NVIDIA's, run `pdm run setup --cuda`"
    return "MLX finds no GPU on this machine"


def activation_dtype(function: str, requested: str | mx.Dtype, device: str) -> mx.Dtype:
    """Check the type of activations.

    "auto" is float16 on Metal, bfloat16 on CUDA and on CPUs that multiply it, else float32.
    """
    check_type(function, "dtype", requested, str | mx.Dtype, "a str or a type of mlx")
    for name, dtype in DTYPES.items():
        if requested in (name, dtype):
            return dtype
    if requested != AUTO:
        got = repr(requested) if isinstance(requested, str) else dtype_name(requested)
        raise ArgumentError(function, "dtype", got, f"one of {', '.join([AUTO, *DTYPES])}")
    if device == "gpu":
        return mx.float16 if mx.metal.is_available() else mx.bfloat16
    return mx.bfloat16 if load_extension().cpu_isa() in BFLOAT16_ISAS else mx.float32


def check_process() -> None:
    """UnsupportedError in a child that was forked after MLX had computed: without its threads, MLX hangs."""
    global _process
    _process = _process or os.getpid()
    if is_forked():
        expected = "one that was started, as by multiprocessing.get_context('spawn')"
        raise UnsupportedError("", "process", "a child that was forked after MLX had computed", expected)


def is_forked() -> bool:
    """Whether this is such a child. The locks of other threads may be held there forever."""
    return _process not in (None, os.getpid())


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """A block in which MLX computes on this device; blocks on other devices wait until it has ended.

    MLX's errors about memory become `OutOfMemoryError`. UnsupportedError in a forked child.
    """
    check_process()
    with memory_errors(), TURNS.on(mx.Device(DEVICES[name])):
        yield
