"""The flags that choose where to compute, and in which type of number."""

import mlx.core as mx

from ..errors import ArgumentError
from ..runtime.device import AUTO, DEVICES, DTYPES, activation_dtype, device_name, dtype_name
from ..runtime.installation import describe_cpu
from .exit_codes import Failure, Refusal

__all__ = ["DEVICES", "DTYPES", "check_kernels", "choose_device", "choose_dtype", "dtype_name"]


def choose_device(requested: str | None) -> str:
    """Make the device the default one of MLX; without a wish it is the GPU where there is one."""
    try:
        name = device_name("--device", requested or AUTO)
    except ArgumentError as error:
        raise Refusal(f"--device: {error.reason}") from error
    mx.set_default_device(DEVICES[name])
    return name


def choose_dtype(requested: str, device: str) -> mx.Dtype:
    """The type of activations; "auto" is the one that the device is fastest in without loss of sense."""
    return activation_dtype("--dtype", requested, device)


def check_kernels() -> None:
    """Fail early, and in one sentence, where the native kernels are missing or their settings are wrong."""
    try:
        describe_cpu()
    except (RuntimeError, ImportError, ValueError) as unusable:  # ValueError: TINY_LLM_CPU_ISA or _THREADS
        raise Failure(str(unusable)) from unusable
