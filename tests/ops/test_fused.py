"""The operations that layers take on a GPU: those of the readable forms, within the rounding of the type."""

import math

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import Embedding
from tiny_llm.basics import silu_multiply
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.positional_encoding import RoPE
from tiny_llm.quantize import QuantizedEmbedding, QuantizedWeights, multiply_on_gpu

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.gpu import on_a_gpu
from ..support.rows import assert_rounded_once
from ..support.tolerance import FLOOR, to_float64

pytestmark = pytest.mark.usefixtures("on_the_cpu")

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
INTEGERS = (mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64)


def on_gpu(function, *arguments):
    with on_a_gpu():
        result = function(*arguments)
        mx.eval(result)
    return result


@each_dtype
@pytest.mark.parametrize("size", [1.0, 300.0])  # the square of 300 is not a float16
@pytest.mark.parametrize("weight_dtype", [mx.float32, None], ids=["float32", "same"])
def test_rms_norm(dtype, size, weight_dtype):
    x = (size * normal(2, 3, 96, seed=1)).astype(dtype)
    weight = (1 + 0.2 * normal(96, seed=2)).astype(weight_dtype or dtype)
    wide, eps = to_float64(x), 1e-3
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * to_float64(weight)
    assert_rounded_once(on_gpu(RMSNorm(96, weight, eps), x), expected, dtype)


@each_dtype
def test_silu_multiply(dtype):
    gate = mx.concatenate([4 * normal(3, 60, seed=1), mx.array([[-90.0, -20, 0, 300]] * 3)], axis=1)
    gate, up = gate.astype(dtype), normal(3, 64, seed=2, dtype=dtype)
    wide = to_float64(gate)
    expected = wide / (1 + np.exp(-wide)) * to_float64(up)
    got = on_gpu(silu_multiply, gate, up)
    assert got.dtype == dtype
    # Three roundings to the type. In float16, 1 / (1 + exp) is 0 where exp overflows, below 2**-16.
    rounding, lost = {
        mx.float32: (2**-22, 2**-30),
        mx.float16: (2**-9, 2**-15),
        mx.bfloat16: (2**-6, 2**-30),
    }[dtype]
    allowed = rounding * np.abs(expected) + lost * np.abs(wide * to_float64(up))
    assert (np.abs(to_float64(got) - expected) <= allowed).all()


def rotated(x, starts, rope):
    """x [N, S, H, D] in float64, with the exact angles."""
    half = rope.dims // 2
    frequency = float(rope.base) ** (-np.arange(half) / half)
    positions = np.array(starts)[:, None] + np.arange(x.shape[1])
    angle = positions[..., None, None] * frequency
    wide = to_float64(x)
    pairs = (wide[..., ::2], wide[..., 1::2]) if rope.traditional else np.split(wide, 2, axis=-1)
    real = pairs[0] * np.cos(angle) - pairs[1] * np.sin(angle)
    imaginary = pairs[1] * np.cos(angle) + pairs[0] * np.sin(angle)
    if rope.traditional:
        return np.stack([real, imaginary], axis=-1).reshape(x.shape)
    return np.concatenate([real, imaginary], axis=-1)


def angle_error(last: int) -> float:
    """The largest error of an angle up to position `last`.

    MLX computes a frequency and its product with the position in float32. Three roundings of 2**-24 are
    relative to the angle, and the largest angle is the position.
    """
    return 3 * 2**-24 * last


@each_dtype
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("starts", [[0, 0], [7, 7], [5, 300], [30000, 3], [30000, 30000]], ids=str)
@pytest.mark.parametrize("length", [1, 5])
def test_rope(dtype, traditional, starts, length):
    rope = RoPE(64, 32768, 1e6, traditional=traditional)
    x = normal(2, length, 3, 64, dtype=dtype, seed=1)
    expected = rotated(x, starts, rope)
    offset = starts[0] if len(set(starts)) == 1 else starts
    spans = [slice(start, start + length) for start in starts]
    heads_first = on_gpu(rope.heads_first, x, offset)
    tokens_first = on_gpu(rope, x, spans[0] if isinstance(offset, int) else spans)
    assert heads_first.dtype == tokens_first.dtype == dtype
    assert mx.array_equal(heads_first.swapaxes(1, 2), tokens_first)
    rounding = {mx.float32: 2**-22, mx.float16: 2**-10, mx.bfloat16: 2**-7}[dtype]
    size = math.sqrt(2) * np.abs(to_float64(x)).max()  # of a pair
    # In float32 the angles are those of the table, which are exact.
    allowed = size * (rounding + (0 if dtype == mx.float32 else angle_error(max(starts) + length)))
    assert np.abs(to_float64(tokens_first) - expected).max() <= allowed
    readable = rope(x, spans)
    assert np.abs(to_float64(tokens_first) - to_float64(readable)).max() <= allowed + size * rounding


@each_dtype
def test_rope_of_a_broadcast_input(dtype):
    """MLX's own operation on CUDA turns all positions of such an input alike."""
    rope, x = RoPE(4, 300), normal(1, 1, 1, 4, dtype=dtype)
    same = mx.broadcast_to(x, (1, 3, 1, 4))
    assert mx.array_equal(on_gpu(rope, same), on_gpu(rope, mx.concatenate([x] * 3, axis=1)))


@pytest.mark.parametrize("offset", [300, -1, 299, [5, 299], [-1, 5]], ids=str)
def test_rope_of_positions_outside_of_the_context_is_refused(offset):
    rope, x = RoPE(64, 300), normal(2, 2, 1, 64)
    with pytest.raises(ValueError, match=r"^RoPE: offset: got .* for 2 tokens, expected .*0\.\.299$"):
        on_gpu(rope.heads_first, x, offset)
    starts = offset if isinstance(offset, list) else [offset] * 2
    with pytest.raises(ValueError, match=r"^RoPE: offset: got .*, expected .*0\.\.299$"):
        on_gpu(rope, x, [slice(start, start + 2) for start in starts])


def table_of(kind, rows, width, dtype):
    dense = normal(rows, width, dtype=dtype, seed=3)
    if kind == "dense":
        return Embedding(rows, width, dense), to_float64(dense)
    weight, scales, biases = mx.quantize(dense.astype(mx.float32), 32, kind)
    packed = QuantizedWeights(scales.astype(dtype), biases.astype(dtype), 32, kind, weight)
    return QuantizedEmbedding(rows, width, packed), to_float64(packed.astype(mx.float32).dequantize())


TABLES = [("dense", 64), ("dense", 63), ("dense", 1), (4, 32), (4, 96), (8, 32)]


@each_dtype
@pytest.mark.parametrize(("kind", "width"), TABLES, ids=str)
@pytest.mark.parametrize("ids_dtype", INTEGERS, ids=str)
def test_rows_of_a_table_and_nan_for_unknown_tokens(kind, width, dtype, ids_dtype):
    """Odd widths are not whole words of 32 bits in half types."""
    rows = 100
    table, expected = table_of(kind, rows, width, dtype)
    info = np.iinfo(str(ids_dtype).removeprefix("mlx.core."))
    ids = [[0, 99, 1], [100, info.max, info.min], [7, 101, info.max - 1]]
    ids = np.array(ids, info.dtype)
    known = (ids >= 0) & (ids < rows)
    assert not known.all()
    for vectors in (table(mx.array(ids)), on_gpu(table, mx.array(ids))):
        assert vectors.dtype == dtype
        assert vectors.shape == (3, 3, width)
        found = to_float64(vectors)
        assert np.isnan(found[~known]).all()
        error = np.abs(found[known] - expected[ids[known]]).max()
        # MLX rounds number * scale to the type, and adds the bias.
        assert error <= (0 if kind == "dense" else 2 * FLOOR[dtype])


@pytest.mark.parametrize("ids", [mx.array([1.0]), mx.array([True])], ids=["float", "bool"])
@pytest.mark.parametrize("kind", ["dense", 4])
def test_ids_that_are_no_integers_are_refused(kind, ids):
    table, _ = table_of(kind, 10, 32, mx.float32)
    with pytest.raises(ValueError, match=r"^Embedding: ids: got .*, expected"):
        on_gpu(table, ids)


def test_a_table_with_gaps():
    """A table that is every second row of another, and one whose columns are rows in memory."""
    stored = normal(40, 64, seed=1)
    for weight in (stored[::2], normal(64, 20, seed=2).T):
        table = Embedding(20, 64, weight)
        assert mx.array_equal(on_gpu(table, mx.array([3, 19])), weight[mx.array([3, 19])])


def test_a_dense_table_has_gradients():
    ids = mx.array([2, 0, 2])

    def loss(weight):
        return mx.sum(Embedding(4, 6, weight)(ids))

    gradient = on_gpu(mx.grad(loss), normal(4, 6, seed=1))
    assert gradient.sum(axis=-1).tolist() == [6, 0, 12, 0]


def test_a_batch_is_one_matrix_for_any_number_of_rows():
    """A compiled function must not keep the sizes of its first call."""
    weights = QuantizedWeights(
        *mx.quantize(normal(8, 64, seed=1), 64, 4)[1:], 64, 4, mx.quantize(normal(8, 64, seed=1), 64, 4)[0]
    )
    product = mx.compile(lambda x: multiply_on_gpu(x, weights), shapeless=True)
    dense = to_float64(weights.dequantize()).T
    for rows in (3, 5):
        x = normal(rows, 1, 64, seed=rows)
        np.testing.assert_allclose(to_float64(product(x)), to_float64(x) @ dense, rtol=1e-5, atol=1e-5)
    assert multiply_on_gpu(mx.zeros((0, 1, 64)), weights).shape == (0, 1, 8)
