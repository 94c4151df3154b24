"""For the course tests: devices and precisions to run on, and comparisons of results."""

import mlx.core as mx
import numpy as np
import pytest

from .support.attention import oracle
from .support.tolerance import to_float64

_needs_gpu = pytest.mark.skipif(not mx.is_available(mx.gpu), reason="MLX has no GPU on this machine")

AVAILABLE_STREAMS = [mx.cpu, pytest.param(mx.gpu, marks=_needs_gpu)]
AVAILABLE_STREAMS_IDS = ["cpu", "gpu"]
PRECISIONS = [mx.float32, mx.float16]
PRECISION_IDS = ["f32", "f16"]

on_each_device = pytest.mark.parametrize("stream", AVAILABLE_STREAMS, ids=AVAILABLE_STREAMS_IDS)
in_each_precision = pytest.mark.parametrize("precision", PRECISIONS, ids=PRECISION_IDS)

# (rtol, atol) for results of unit scale, computed in float32 and rounded to their type at the end.
_ROUNDED_ONCE = {mx.float32: (1e-5, 1e-6), mx.float16: (2e-3, 1e-3), mx.bfloat16: (1.6e-2, 8e-3)}


def np_type_to_mx_type(t: np.dtype | type) -> mx.Dtype:
    """The MLX type of the same name as the NumPy type `t`."""
    return getattr(mx, np.dtype(t).name)


def attention_in_float64(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | str | None = None,
) -> np.ndarray:
    """The oracle's result, which every attention function of the course must give for these arrays."""
    if query.ndim == 2:  # the oracle needs a head axis
        return attention_in_float64(query[None], key[None], value[None], scale, mask)[0]
    if isinstance(mask, mx.array):
        mask = np.array(mask) if mask.dtype == mx.bool_ else to_float64(mask)
    return oracle.attention(to_float64(query), to_float64(key), to_float64(value), scale, mask).out


def assert_allclose(
    a: mx.array | np.ndarray,
    b: mx.array | np.ndarray,
    precision: mx.Dtype,
    rtol: float | None = None,
    atol: float | None = None,
    message: str | None = None,
) -> None:
    """`a` and `b` have one shape and no NaN, and differ by at most atol + rtol * |b| in every element."""
    defaults = {mx.float32: (1e-5, 1e-6), mx.float16: (3e-2, 1e-5)}
    if precision not in defaults:
        raise ValueError(f"assert_allclose: precision: got {precision}, expected float32 or float16")
    default_rtol, default_atol = defaults[precision]
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    _compare(np.array(a, dtype=np.float64), np.array(b, dtype=np.float64), rtol, atol, message)


def assert_rounded_once(
    actual: mx.array, expected: np.ndarray, precision: mx.Dtype, message: str | None = None
) -> None:
    """`actual` has dtype `precision` and equals `expected` within the error of float32 and one rounding."""
    assert actual.dtype == precision, f"dtype: got {actual.dtype}, expected {precision}"
    _compare(to_float64(actual), expected, *_ROUNDED_ONCE[precision], message)


def assert_layer_close(actual: mx.array, expected: np.ndarray, precision: mx.Dtype) -> None:
    """`actual` has dtype `precision` and equals `expected` within the error of rounding after each step."""
    assert actual.dtype == precision, f"dtype: got {actual.dtype}, expected {precision}"
    if precision == mx.float32:
        rtol, atol = 1e-5, 1e-6
    else:
        rtol, atol = 3e-2, 1e-2 * np.abs(expected).max(initial=0)
    _compare(to_float64(actual), expected, rtol, atol)


def _compare(
    actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float, message: str | None = None
) -> None:
    # NumPy would broadcast a single number to any shape, and would accept NaN as equal to NaN.
    assert actual.shape == expected.shape, f"shape: got {actual.shape}, expected {expected.shape}"
    np.testing.assert_allclose(actual, expected, rtol, atol, equal_nan=False, err_msg=message or "")


def qwen_2_05b_model_exists() -> bool:
    """Whether Qwen2 0.5B is in the local model cache."""
    return _is_cached("Qwen/Qwen2-0.5B-Instruct-MLX")


def qwen_2_15b_model_exists() -> bool:
    """Whether Qwen2 1.5B is in the local model cache."""
    return _is_cached("Qwen/Qwen2-1.5B-Instruct-MLX")


def qwen_2_7b_model_exists() -> bool:
    """Whether Qwen2 7B is in the local model cache."""
    return _is_cached("Qwen/Qwen2-7B-Instruct-MLX")


def _is_cached(repository: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(repository, "config.json"), str)
