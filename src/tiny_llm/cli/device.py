"""Device, data type and threads: from options to MLX and the kernels."""

import mlx.core as mx

from ..runtime.device import AUTO, DEVICES, activation_dtype, device_name
from ..runtime.extension import load_extension
from ..runtime.installation import describe_cpu
from .exit_codes import Failure, naming_flags


def choose_device(requested: str | None) -> str:
    """Make a device MLX's default, and return its name; None is the GPU if MLX has one, else the CPU."""
    with naming_flags("device"):
        name = device_name("", requested or AUTO)
    mx.set_default_device(DEVICES[name])
    return name


def choose_dtype(requested: str, device: str, *, mlx_lm: bool = False) -> mx.Dtype:
    """The type of the activations; "auto" is the fastest of the device whose results are good enough.

    On a CPU that is float32 for `mlx_lm`, where MLX's 16-bit products take 10 times longer.
    """
    if mlx_lm and requested == AUTO and device == "cpu":
        return mx.float32
    return activation_dtype("--dtype", requested, device)


def set_threads(given: str) -> None:
    """Let the CPU kernels of this process use these numbers of threads; wrong ones are an ArgumentError."""
    try:
        load_extension().set_cpu_threads(given, "--threads")
    except (RuntimeError, ImportError) as unusable:
        raise Failure(str(unusable)) from unusable


def check_kernels() -> None:
    """Failure in one line if the native kernels are missing or their environment variables are wrong."""
    try:
        describe_cpu()
    except (RuntimeError, ImportError, ValueError) as unusable:  # ValueError: TINY_LLM_CPU_ISA or _THREADS
        raise Failure(str(unusable)) from unusable
