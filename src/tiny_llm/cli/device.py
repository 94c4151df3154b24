"""The device that computes, and the type of number that it is good at."""

import mlx.core as mx

from ..extension import load_extension
from ..installation import describe_cpu
from .endings import Failure, Refusal

DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu}
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
BFLOAT16_ISAS = {"avx512bf16", "amx"}  # instruction sets that multiply bfloat16


def choose_device(asked: str | None) -> str:
    """Make the device the default one of MLX; without a wish it is the GPU where there is one."""
    found = mx.is_available(mx.gpu)
    if asked == "gpu" and not found:
        raise Refusal("--device: got gpu, expected cpu: MLX finds no GPU on this machine")
    name = asked or ("gpu" if found else "cpu")
    mx.set_default_device(DEVICES[name])
    return name


def choose_dtype(asked: str, device: str) -> mx.Dtype:
    """The type of activations; "auto" is the one that the device is fastest in without loss of sense."""
    if asked in DTYPES:
        return DTYPES[asked]
    if device == "gpu":
        return mx.float16 if mx.metal.is_available() else mx.bfloat16
    return mx.bfloat16 if load_extension().cpu_isa() in BFLOAT16_ISAS else mx.float32


def dtype_name(dtype: mx.Dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def check_kernels() -> None:
    """Fail early, and in one sentence, where the native kernels are missing or their settings are wrong."""
    try:
        describe_cpu()
    except (RuntimeError, ImportError, ValueError) as unusable:  # ValueError: TINY_LLM_CPU_ISA or _THREADS
        raise Failure(str(unusable)) from unusable
