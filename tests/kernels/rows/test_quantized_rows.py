"""`quantized_rows` gives the decoded rows of packed weights, and NaN for invalid ids."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.quantize import QuantizedEmbedding, QuantizedWeights
from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES
from ...support.products.quantized import packed
from ...support.refusal import case_id, refused
from ...support.rows import LAYOUTS, assert_rounded_once, graph_of, same_when_mapped
from ...support.tolerance import to_float64

quantized_rows = load_extension().quantized_rows


def look_up(ids, weights):
    return quantized_rows(
        ids, weights.words, weights.scales, weights.biases, weights.group_size, weights.bits
    )


def check(ids, weights):
    result = look_up(ids, weights)
    assert_rounded_once(result, weights.dense()[np.array(ids)], weights.scales.dtype)
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_each_format_and_dtype(bits, group_size, dtype):
    weights = packed(50, 3 * group_size, group_size=group_size, bits=bits, dtype=dtype)
    check(mx.array([3, 49, 0, 3, 17]), weights)


@pytest.mark.parametrize("dtype", [mx.int32, mx.uint32, mx.int64])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,), (2, 0, 3), (600,)], ids=str)
def test_each_shape_and_type_of_ids(shape, dtype):
    """The longest one runs on several threads."""
    count = int(np.prod(shape))
    check((mx.arange(count) % 50).reshape(shape).astype(dtype), packed(50, 896))


def test_invalid_ids_give_nan():
    weights = packed(50, 64)
    ids = [-1, 50, 2**31 - 1, -(2**31), 2**40, -(2**40), 7]
    result = look_up(mx.array(ids, dtype=mx.int64), weights)
    assert mx.isnan(result[:-1]).all()
    check(mx.array([7]), weights)
    assert mx.array_equal(result[-1], look_up(mx.array(7), weights))
    assert mx.isnan(look_up(mx.array([2**32 - 1], dtype=mx.uint32), weights)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    weights, ids = packed(50, 192), mx.array([[1, 2, 3], [49, 0, 2]])
    moved = weights._replace(
        **{name: layout(getattr(weights, name)) for name in ("scales", "biases", "words")}
    )
    assert mx.array_equal(look_up(layout(ids), moved), look_up(ids, weights))


def test_one_id_for_all_rows_by_stride():
    check(mx.broadcast_to(mx.array(5), (4, 3)), packed(50, 64))


@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_over_ids(axis):
    weights = packed(50, 64)
    same_when_mapped(lambda ids: look_up(ids, weights), [mx.array([[1, 2], [3, 4]])], (axis,))


def test_shapeless_compile():
    weights = packed(50, 64)
    compiled = mx.compile(lambda ids: look_up(ids, weights), shapeless=True)
    for ids in (mx.array([1, 2]), mx.array([3, 4, 5])):
        assert mx.array_equal(compiled(ids), look_up(ids, weights))


def test_the_gradient_is_refused():
    weights = packed(50, 64)
    loss = lambda scales: mx.sum(look_up(mx.array([1]), weights._replace(scales=scales)))  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"^quantized_rows: "):
        mx.eval(mx.grad(loss)(weights.scales))


def broadcast(*shape, dtype=mx.float32):
    """Zeros that need no memory."""
    return mx.broadcast_to(mx.zeros((), dtype), shape)


FITTING = {"ids": mx.array([1]), "weight": mx.zeros((40, 16), dtype=mx.uint32), "scales": mx.zeros((40, 2)),
           "biases": mx.zeros((40, 2)), "group_size": 64, "bits": 4}  # fmt: skip


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("group_size", {"group_size": 16}),
        ("bits", {"bits": 3}),
        ("ids", {"ids": mx.array([1.0])}),
        ("ids", {"ids": mx.array([1], dtype=mx.int8)}),
        ("weight", {"weight": mx.zeros((40, 16), dtype=mx.int32)}),
        ("weight", {"weight": mx.zeros((2, 40, 16), dtype=mx.uint32)}),
        ("scales", {"scales": mx.zeros((40, 2), dtype=mx.int32)}),
        ("scales", {"scales": mx.zeros((39, 2))}),
        ("scales", {"scales": mx.zeros((40, 3))}),
        ("scales", {"bits": 8}),
        ("scales", {"group_size": 32}),
        (
            "weight",
            {
                "weight": broadcast(40, 2**28, dtype=mx.uint32),
                "scales": broadcast(40, 2**25),
                "biases": broadcast(40, 2**25),
            },
        ),
        (
            "weight",
            {
                "weight": broadcast(40, 2**30, dtype=mx.uint32),
                "scales": broadcast(40, 2**27),
                "biases": broadcast(40, 2**27),
            },
        ),
        ("biases", {"biases": mx.zeros((40, 2), dtype=mx.float16)}),
        ("biases", {"biases": mx.zeros((40, 1))}),
        ("biases", {"biases": mx.zeros((40,))}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="quantized_rows"):
        quantized_rows(**(FITTING | wrong))


def test_the_longest_possible_rows_are_accepted():
    groups = (2**31 - 1) // 64
    rows = quantized_rows(
        mx.zeros((0,), dtype=mx.int32),
        broadcast(1, groups * 8, dtype=mx.uint32),
        broadcast(1, groups),
        broadcast(1, groups),
        64,
        4,
    )
    mx.eval(rows)
    assert rows.shape == (0, groups * 64)


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^quantized_rows: .*gpu"):
        quantized_rows(**FITTING, stream=mx.gpu)


@pytest.mark.parametrize("ids", [[0, 49, 50, -1], [[3], [4]]], ids=str)
@pytest.mark.parametrize("dtype", [mx.int8, mx.uint16, mx.int32, mx.int64])
def test_the_embedding_and_its_readable_form_agree(dtype, ids):
    weights = packed(50, 128)
    table = QuantizedWeights(weights.scales, weights.biases, 64, 4, weights.words)
    ids = mx.array(ids).astype(dtype)
    fast = QuantizedEmbedding(50, 128, table)(ids)
    with graph_of("tiny_llm.quantize"):
        readable = QuantizedEmbedding(50, 128, table)(ids)
    np.testing.assert_allclose(to_float64(fast), to_float64(readable), 1e-6, 1e-6, equal_nan=True)
