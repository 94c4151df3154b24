"""`as_on_gpu`: layers take the operations of a GPU on any device."""

import mlx.core as mx
import pytest

from tiny_llm.attention import explain
from tiny_llm.quantize import quantized_matmul
from tiny_llm.runtime.extension import cpu_kernels
from tiny_llm.runtime.gpu import as_on_gpu, computes_on_gpu

pytestmark = pytest.mark.usefixtures("on_the_cpu")


def path_of_a_product() -> str:
    weight, scales, biases = mx.quantize(mx.ones((64, 64)))
    return explain(quantized_matmul, scales, biases, 64, 4, mx.ones((1, 64)), weight, True).path


def test_layers_take_no_kernel_of_the_cpu():
    with as_on_gpu():
        assert computes_on_gpu()
        assert cpu_kernels(mx.float32) is None
        assert path_of_a_product() == "mlx.quantized_matmul"


def test_after_the_block_layers_take_the_kernels_of_the_device():
    with pytest.raises(KeyError), as_on_gpu(), as_on_gpu():
        raise KeyError
    assert not computes_on_gpu()
    assert cpu_kernels(mx.float32) is not None
    assert path_of_a_product() == "cpu.quantized_matmul"
