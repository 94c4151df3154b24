"""Week 2, days 2 and 3: quantized weights. Task 2 is the kernel for the CPU, task 3 the one for the GPU."""

import mlx.core as mx
import pytest

from extensions import tiny_llm_ext

from .metal.course import product_on_gpu
from .support.cases import DTYPE_IDS, DTYPES, normal
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.layer_arguments import mlp_arguments, one_layer
from .support.models.logits import assert_logits
from .support.products.quantized import Packed, assert_product, packed
from .support.refusal import case_id
from .support.tolerance import to_float64
from .tiny_llm_base import (
    QuantizedWeights,
    Qwen2ModelWeek2,
    explain,
    quantize,
    quantized_linear,
    qwen2_week2,
)

in_each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)


def check_product(M, N, K, dtype, **format):
    """The binding equals the float64 product with the unpacked weights, in the type of the activations."""
    weights, a = packed(N, K, dtype=dtype, **format), normal(M, K, dtype=dtype)
    scales, biases, group_size, bits, words = weights
    result = tiny_llm_ext.quantized_matmul(scales, biases, group_size, bits, a, words, transpose_b=True)
    assert_product(result, a, weights)


# Task 1: QuantizedWeights and quantized_linear in src/tiny_llm/quantize.py


def test_task_1_quantized_weights_are_those_of_the_layer():
    """Nothing is converted or copied; the shape is that of the matrix, not of its words."""
    layer = one_layer().layer.mlp.up_proj
    weights = QuantizedWeights.from_mlx_layer(layer)
    for name in ("scales", "biases", "group_size", "bits", "weight"):
        assert getattr(weights, name) is getattr(layer, name)
    assert weights.shape == (192, 128)
    same = QuantizedWeights(layer.scales, layer.biases, 64, 4, layer.weight)
    assert mx.array_equal(same.dequantize(), weights.dequantize())


@pytest.mark.parametrize(("name", "value"), [("biases", None), ("mode", "mxfp4")])
def test_task_1_quantized_weights_refuse_other_formats(name, value):
    """Without a bias for each group, the packed numbers mean something else."""
    layer = one_layer().layer.mlp.up_proj
    setattr(layer, name, value)
    with pytest.raises(ValueError, match=f"QuantizedWeights: {name}: got"):
        QuantizedWeights.from_mlx_layer(layer)


@in_each_dtype
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("leading", [(), (33,), (2, 7)], ids=["rank_1", "rank_2", "rank_3"])
def test_task_1_quantized_linear_is_a_linear_map(leading, bits, dtype):
    """x times the transposed weights, with a bias or without."""
    weights, x = packed(96, 128, bits=bits, dtype=dtype), normal(*leading, 128, dtype=dtype)
    held = QuantizedWeights(*weights)
    with mx.stream(mx.cpu):
        product = quantized_linear(x, held)
        assert_product(product, x, weights)
        bias = normal(96, dtype=dtype, seed=5)
        assert mx.array_equal(quantized_linear(x, held, bias), product + bias)


# Task 2: the kernel of src/extensions/src/quantized_matmul.cpp, and the Python function that calls it


def test_task_2_quantized_matmul_cpu_unpacks_the_lowest_bits_first():
    """One row of weights 0, 1, ... 7 in each word, times the unit vectors: one by one, a few, and all."""
    words = mx.full((1, 8), 0x76543210, dtype=mx.uint32)
    weights = 2.0 * (mx.arange(64) % 8) - 3.0
    with mx.stream(mx.cpu):
        for rows in (1, 4, 64):
            for unit in mx.split(mx.eye(64), 64 // rows):
                result = tiny_llm_ext.quantized_matmul(
                    mx.array([[2.0]]), mx.array([[-3.0]]), 64, 4, unit, words, True
                )
                assert mx.array_equal(result[:, 0], unit @ weights)


@in_each_dtype
@pytest.mark.parametrize("M", [1, 3, 8, 33, 70])
@pytest.mark.parametrize(("N", "K"), [(96, 896), (129, 64), (7, 4864)])
def test_task_2_quantized_matmul_cpu(M, N, K, dtype):
    """From one token to a prompt; the format of the course, 4 bits in groups of 64."""
    with mx.stream(mx.cpu):
        check_product(M, N, K, dtype)


@in_each_dtype
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_task_2_quantized_matmul_cpu_of_other_formats(bits, group_size, dtype):
    with mx.stream(mx.cpu):
        check_product(5, 33, 384, dtype, bits=bits, group_size=group_size)


@in_each_dtype
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=["rank_1", "rank_2", "rank_3"])
def test_task_2_quantized_matmul_cpu_through_the_python_function(leading, dtype):
    """quantize.quantized_matmul takes activations of any rank."""
    weights, a = packed(40, 128, dtype=dtype), normal(*leading, 128, dtype=dtype)
    scales, biases, group_size, bits, words = weights
    with mx.stream(mx.cpu):
        result = quantize.quantized_matmul(scales, biases, group_size, bits, a, words, transpose_b=True)
        assert_product(result, a, weights)


@pytest.mark.parametrize(
    "wrong",
    [{"bits": 3}, {"group_size": 16}, {"transpose_b": False}, {"b": mx.zeros((40, 16))},
     {"a": mx.zeros((3, 120))}, {"a": mx.zeros((3, 128), dtype=mx.float16)}, {"biases": mx.zeros((40, 1))}],
    ids=case_id,
)  # fmt: skip
def test_task_2_quantized_matmul_cpu_refuses_invalid_arguments(wrong):
    scales, biases, group_size, bits, words = packed(40, 128)
    fitting = {"scales": scales, "biases": biases, "group_size": group_size, "bits": bits,
               "a": normal(3, 128), "b": words, "transpose_b": True}  # fmt: skip
    with pytest.raises(ValueError, match=r"^quantized_matmul: \w+: got .+, expected .+"):
        tiny_llm_ext.quantized_matmul(**(fitting | wrong))


# Task 3: the same on the GPU; the kernels of src/extensions/src/quantized_matmul.metal


def test_task_3_quantized_matmul_gpu_unpacks_the_lowest_bits_first():
    """As on the CPU."""
    weights = Packed(mx.array([[2.0]]), mx.array([[-3.0]]), 64, 4, mx.full((1, 8), 0x76543210, mx.uint32))
    for rows in (1, 4, 64):
        unit = mx.eye(64)[:rows]
        assert mx.array_equal(product_on_gpu(unit, weights)[:, 0], unit @ (2.0 * (mx.arange(64) % 8) - 3.0))


@in_each_dtype
@pytest.mark.parametrize("M", [1, 3, 8, 9, 33])
@pytest.mark.parametrize(("N", "K"), [(96, 896), (129, 64), (7, 4864)])
def test_task_3_quantized_matmul_gpu(M, N, K, dtype):
    """From one token to a prompt, as on the CPU; without a GPU, the kernels run on the processor."""
    weights, a = packed(N, K, dtype=dtype), normal(M, K, dtype=dtype)
    assert_product(product_on_gpu(a, weights), a, weights)


@in_each_dtype
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("M", [5, 33])
def test_task_3_quantized_matmul_gpu_of_other_formats(M, bits, group_size, dtype):
    weights = packed(33, 384, bits=bits, group_size=group_size, dtype=dtype)
    a = normal(M, 384, dtype=dtype)
    assert_product(product_on_gpu(a, weights), a, weights)


@pytest.mark.skipif(not mx.is_available(mx.gpu), reason="MLX has no GPU on this machine")
@in_each_dtype
@pytest.mark.parametrize("M", [1, 3, 33])
def test_task_3_quantized_matmul_gpu_through_the_python_function(M, dtype):
    """quantize.quantized_matmul leaves the choice of the kernel to MLX."""
    weights, a = packed(96, 896, dtype=dtype), normal(M, 896, dtype=dtype)
    scales, biases, group_size, bits, words = weights
    with mx.stream(mx.gpu):
        arguments = (scales, biases, group_size, bits, a, words)
        assert explain(quantize.quantized_matmul, *arguments, transpose_b=True).path == "mlx.quantized_matmul"
        assert_product(quantize.quantized_matmul(*arguments, transpose_b=True), a, weights)


# Task 4: the layers and the model on packed weights


@in_each_dtype
def test_task_4_mlp_on_packed_weights(dtype):
    """The layer of week 1, without ever unpacking a matrix."""
    model = one_layer()
    x = normal(2, 33, 128, dtype=dtype)
    with mx.stream(mx.cpu):
        result = qwen2_week2.Qwen2MLP(**mlp_arguments(model, dtype, packed=True))(x)
    expected = decoder.feed_forward(to_float64(x), model.layer.mlp)
    assert result.dtype == dtype
    assert_logits(result, expected, {mx.float32: 1e-5, mx.float16: 1e-2, mx.bfloat16: 2e-2}[dtype])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scale_dtype", DTYPES, ids=DTYPE_IDS)
def test_task_4_model_keeps_its_weights_packed(bits, scale_dtype):
    """The words of the checkpoint are the only copy; scales and biases are in the type of the activations."""
    weights = checkpoint(tied=False, bits=bits, scale_dtype=scale_dtype)
    model = Qwen2ModelWeek2(weights)
    layer, original = model.layers_inner[1], weights.model.layers[1]
    held = {
        layer.self_attn.wq: original.self_attn.q_proj,
        layer.mlp.w_down: original.mlp.down_proj,
        model.embedding.weight: weights.model.embed_tokens,
        model.w_lm_head: weights.lm_head,
    }
    for packed_weights, source in held.items():
        assert packed_weights.weight is source.weight
        assert packed_weights.scales.dtype == packed_weights.biases.dtype == mx.float16
    inputs = tokens(2, 33)
    with mx.stream(mx.cpu):
        logits = model(inputs, 0, model.create_kv_cache())
    assert_logits(logits, decoder.logits(inputs, weights), tolerance=2e-2)
