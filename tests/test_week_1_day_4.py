"""Week 1, day 4: RMS normalisation, and the feed-forward layer with its activation."""

import mlx.core as mx
import numpy as np
import pytest

from .support.cases import normal
from .support.models import decoder
from .support.models.layer_arguments import mlp_arguments, one_layer
from .support.tolerance import to_float64
from .tiny_llm_base import RMSNorm, qwen2_week1, silu
from .utils import assert_layer_close, assert_rounded_once, in_each_precision, on_each_device


def rms_norm_in_float64(x: mx.array, weight: mx.array, eps: float) -> np.ndarray:
    wide = to_float64(x)
    return wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + eps) * to_float64(weight)


@on_each_device
@in_each_precision
def test_task_1_rms_norm_divides_by_the_root_mean_square(stream, precision):
    """Over the last axis, of an input with any number of dimensions."""
    weight = normal(111, dtype=precision, seed=2)
    for shape in ((111,), (33, 111), (2, 3, 5, 111)):
        x = normal(*shape, dtype=precision, seed=1)
        with mx.stream(stream):
            assert_rounded_once(RMSNorm(111, weight)(x), rms_norm_in_float64(x, weight, 1e-5), precision)


@on_each_device
@in_each_precision
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_task_1_rms_norm_adds_eps_under_the_root(stream, precision, eps):
    """eps counts most where the input is small, and keeps a vector of zeros from dividing by zero."""
    x = normal(33, 111, dtype=precision) * mx.array([0, 1e-2, 1], dtype=precision)[mx.arange(33) % 3, None]
    weight = mx.ones(111, dtype=precision)
    with mx.stream(stream):
        assert_rounded_once(RMSNorm(111, weight, eps)(x), rms_norm_in_float64(x, weight, eps), precision)


@on_each_device
def test_task_1_rms_norm_of_half_precision_calculates_in_float32(stream):
    """The square of 1000 exceeds float16, and 1e-6 is too small for it: the weight too counts in float32."""
    x = mx.array([1000] + 110 * [1e-4], dtype=mx.float16)
    weight = mx.array([0.1] + 110 * [1e6])
    with mx.stream(stream):
        result = RMSNorm(111, weight)(x)
        assert_rounded_once(result, rms_norm_in_float64(x, weight, 1e-5), mx.float16)


def test_task_1_rms_norm_refuses_invalid_arguments():
    """Weight and input must have the size that the layer was made for."""
    with pytest.raises(ValueError, match=r"RMSNorm: weight: got \(7,\).*8"):
        RMSNorm(8, mx.ones(7))
    with pytest.raises(ValueError, match=r"RMSNorm: x: got \(3, 7\).*8"):
        RMSNorm(8, mx.ones(8))(mx.ones((3, 7)))
    with pytest.raises(ValueError, match="int32"):
        RMSNorm(8, mx.ones(8))(mx.ones((3, 8), dtype=mx.int32))


@on_each_device
@in_each_precision
def test_task_2_silu_is_x_times_its_sigmoid(stream, precision):
    """Element by element, in an array of any shape."""
    x = 4 * normal(3, 33, 70, dtype=precision)
    wide = to_float64(x)
    with mx.stream(stream):
        assert_rounded_once(silu(x), wide / (1 + np.exp(-wide)), precision)


@on_each_device
@in_each_precision
def test_task_2_silu_of_large_numbers_is_the_number_or_zero(stream, precision):
    """exp(-x) overflows there, and the quotient is still 0; large positive numbers pass unchanged."""
    x = mx.array([-65504, -1000, -100, -20, 0, 20, 100, 1000, 65504], dtype=precision)
    with mx.stream(stream):
        assert_rounded_once(silu(x), np.maximum(to_float64(x), 0), precision)


def test_task_2_silu_refuses_integers():
    """Rounding the result back to an integer would leave nothing of it."""
    with pytest.raises(ValueError, match="int32"):
        silu(mx.ones(3, dtype=mx.int32))


@on_each_device
@in_each_precision
def test_task_2_mlp_multiplies_gate_and_up(stream, precision):
    """down(silu(gate x) * up x), over the last axis of any array."""
    model = one_layer()
    for shape in ((128,), (33, 128), (2, 70, 128)):
        x = normal(*shape, dtype=precision)
        with mx.stream(stream):
            mlp = qwen2_week1.Qwen2MLP(**mlp_arguments(model, precision, packed=False))
            assert_layer_close(mlp(x), decoder.feed_forward(to_float64(x), model.layer.mlp), precision)


def test_task_2_mlp_refuses_weights_that_do_not_fit():
    """Up and down are each other's transposed shape."""
    arguments = mlp_arguments(one_layer(), packed=False)
    with pytest.raises(ValueError, match=r"Qwen2MLP: w_down: got \(192, 128\), expected \(128, 192\)"):
        qwen2_week1.Qwen2MLP(**arguments | {"w_down": arguments["w_up"]})
