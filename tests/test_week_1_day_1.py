"""Week 1, day 1: softmax, attention in its plainest form, and multi-head attention on top of it."""

import mlx.core as mx
import numpy as np
import pytest

from .support.attention import oracle
from .support.cases import DTYPE_IDS, DTYPES, normal, random_mask
from .support.tolerance import to_float64
from .tiny_llm_base import (
    SimpleMultiHeadAttention,
    linear,
    scaled_dot_product_attention_simple,
    softmax,
)
from .utils import (
    assert_layer_close,
    assert_rounded_once,
    attention_in_float64,
    in_each_precision,
    on_each_device,
)

# Numbers of queries and keys: above 32, no multiples of 32, and not always more keys than queries.
LENGTHS = [(33, 65), (70, 131), (257, 300), (65, 33), (1, 257)]


def softmax_in_float64(x: np.ndarray, axis: int) -> np.ndarray:
    exp = np.exp(x - x.max(axis=axis, keepdims=True))
    return exp / exp.sum(axis=axis, keepdims=True)


@on_each_device
@in_each_precision
def test_task_1_softmax_follows_the_formula_along_any_axis(stream, precision):
    """exp(x) over its sum, for an array of three dimensions."""
    x = normal(5, 33, 70, dtype=precision)
    with mx.stream(stream):
        for axis in (0, 1, -1):
            assert_rounded_once(softmax(x, axis), softmax_in_float64(to_float64(x), axis), precision)


@on_each_device
@in_each_precision
def test_task_1_softmax_survives_numbers_whose_exponential_overflows(stream, precision):
    """exp(60000) is infinite in every precision, and yet the weights are ordinary numbers."""
    large = 60000 + normal(4, 33)
    x = mx.concatenate([large, -large, mx.full((4, 33), -mx.inf)], axis=1).astype(precision)
    with mx.stream(stream):
        assert_rounded_once(softmax(x, -1), softmax_in_float64(to_float64(x), -1), precision)


@on_each_device
def test_task_1_softmax_of_a_row_of_minus_infinity_is_nan(stream):
    """There are no weights to give. Attention deals with such rows; softmax does not."""
    x = mx.array([[0.0, 0.0], [-mx.inf, -mx.inf]])
    with mx.stream(stream):
        weights = to_float64(softmax(x, axis=-1))
    assert (weights[0] == 0.5).all()
    assert np.isnan(weights[1]).all()


def test_task_1_softmax_refuses_a_missing_axis_and_integers():
    """A wrong axis and a wrong dtype are a ValueError, which shows what it got."""
    with pytest.raises(ValueError, match=r"got 2.*\(3, 4\)"):
        softmax(mx.zeros((3, 4)), axis=2)
    with pytest.raises(ValueError, match="int32"):
        softmax(mx.zeros((3, 4), dtype=mx.int32), axis=0)


def query_key_value(leading, L, S, dtype=mx.float32, D=20):
    """Query [*leading, L, D], key and value [*leading, S, D] of unit scale."""
    return [normal(*leading, n, D, dtype=dtype, seed=i) for i, n in enumerate((L, S, S))]


@on_each_device
def test_task_1_simple_attention_divides_scores_by_the_root_of_the_head_size(stream):
    """One query, two keys, D = 4: the scaled scores are log 3 and 0, so the weights are 3/4 and 1/4."""
    query, key = mx.array([[2.0, 0, 0, 0]]), mx.array([[np.log(3.0), 0, 0, 0], [0, 1, 0, 0]])
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(query, key, mx.array([[8.0], [4.0]]))
        assert_rounded_once(result, np.array([[8 * 3 / 4 + 4 / 4]]), mx.float32)


@on_each_device
def test_task_1_simple_attention_of_scores_whose_exponential_overflows(stream):
    """exp(1000) is infinite; the weights of scores 1000 and 1000 are 1/2 each."""
    query, key = mx.full((1, 4), 20.0), mx.full((2, 4), 25.0)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(query, key, mx.array([[8.0], [4.0]]))
        assert_rounded_once(result, np.array([[6.0]]), mx.float32)


@on_each_device
@pytest.mark.parametrize("as_array", [False, True], ids=["number", "array"])
def test_task_1_simple_attention_with_a_given_scale(stream, as_array):
    """The scale replaces D ** -0.5; an array without dimensions is as good as a Python number."""
    inputs = query_key_value((2,), 33, 65)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs, mx.array(0.1) if as_array else 0.1)
        assert_rounded_once(result, attention_in_float64(*inputs, scale=0.1), mx.float32)


@on_each_device
def test_task_1_simple_attention_holds_scores_in_float32(stream):
    """Scores of 10^5 do not fit into float16, which ends at 65504; the result does."""
    query, key, value = query_key_value((3,), 33, 65, mx.float16)
    inputs = (mx.round(query * 100), mx.round(key * 100), value)  # sums of whole numbers are exact
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs, scale=1.0)
        assert_rounded_once(result, attention_in_float64(*inputs, scale=1.0), mx.float16)


@on_each_device
@in_each_precision
def test_task_1_simple_attention_adds_a_float_mask(stream, precision):
    """The mask is added to the scaled scores, and spread over the dimensions it does not have."""
    inputs = query_key_value((3, 2), 33, 65, precision)
    for mask_shape in ((33, 65), (65,), (2, 33, 1), (3, 2, 33, 65)):
        mask = normal(*mask_shape, dtype=precision, seed=9)
        with mx.stream(stream):
            result = scaled_dot_product_attention_simple(*inputs, mask=mask)
            assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), precision)


@on_each_device
@in_each_precision
def test_task_1_simple_attention_keeps_keys_that_a_bool_mask_marks_true(stream, precision):
    """True keeps a key and False hides it, just as 0 and -inf do in a mask that is added."""
    inputs = query_key_value((3,), 33, 65, precision)
    mask = random_mask(33, 65, keep=0.3)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs, mask=mask)
        assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), precision)


@on_each_device
@in_each_precision
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_task_1_simple_attention_gives_zeros_to_a_query_that_sees_no_key(stream, precision, kind):
    """Softmax of -inf alone is NaN; attention over nothing is nothing. Every fourth row is hidden here."""
    inputs = query_key_value((3,), 33, 65, precision)
    mask = mx.broadcast_to(mx.arange(33)[:, None] % 4 > 0, (33, 65))
    if kind == "float":
        mask = mx.where(mask, 0.0, -mx.inf).astype(precision)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs, mask=mask)
        assert_rounded_once(result, attention_in_float64(*inputs, mask=mask), precision)
    assert (to_float64(result)[:, ::4] == 0).all()


@on_each_device
def test_task_1_simple_attention_over_no_keys_is_zero(stream):
    """S = 0 hides all keys from all queries."""
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*query_key_value((3,), 33, 0))
        assert_rounded_once(result, np.zeros((3, 33, 20)), mx.float32)


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("L", "S"), LENGTHS)
def test_task_1_simple_attention_of_any_lengths(stream, dtype, L, S):
    """Every query averages the values by its similarity to the keys, however many of each there are."""
    inputs = query_key_value((3,), L, S, dtype)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs)
        assert_rounded_once(result, attention_in_float64(*inputs), dtype)


@on_each_device
@pytest.mark.parametrize("leading", [(), (2, 3)], ids=["batch_0", "batch_2"])
def test_task_1_simple_attention_of_any_number_of_dimensions(stream, leading):
    """What stands in front of the last two is kept."""
    inputs = query_key_value(leading, 33, 65)
    with mx.stream(stream):
        result = scaled_dot_product_attention_simple(*inputs)
        assert_rounded_once(result, attention_in_float64(*inputs), mx.float32)


def test_task_1_simple_attention_refuses_invalid_arguments():
    """Wrong shapes and integer masks are a ValueError that shows what it got."""
    query, key, value = query_key_value((3,), 33, 65)
    with pytest.raises(ValueError, match="19"):
        scaled_dot_product_attention_simple(query, key[..., :19], value)
    with pytest.raises(ValueError, match="64"):
        scaled_dot_product_attention_simple(query, key, value[:, :64])
    with pytest.raises(ValueError, match=r"33.*64"):
        scaled_dot_product_attention_simple(query, key, value, mask=mx.zeros((33, 64)))
    with pytest.raises(ValueError, match="int32"):
        scaled_dot_product_attention_simple(query, key, value, mask=mx.ones((33, 65), dtype=mx.int32))


@on_each_device
@in_each_precision
@pytest.mark.parametrize("with_bias", [False, True], ids=["no_bias", "bias"])
def test_task_2_linear_maps_the_last_axis(stream, precision, with_bias):
    """x w^T + bias, for inputs of any number of dimensions."""
    w = normal(50, 20, dtype=precision, seed=2) * 20**-0.5
    bias = normal(50, dtype=precision, seed=3) if with_bias else None
    for shape in ((20,), (33, 20), (2, 3, 33, 20)):
        x = normal(*shape, dtype=precision, seed=1)
        expected = to_float64(x) @ to_float64(w).T + (to_float64(bias) if with_bias else 0)
        with mx.stream(stream):
            assert_layer_close(linear(x, w, bias), expected, precision)


def test_task_2_linear_refuses_invalid_arguments():
    """The error names the argument and shows both sizes."""
    x, w = mx.zeros((3, 20)), mx.zeros((50, 20))
    with pytest.raises(ValueError, match=r"linear: x: got \(3, 19\).*20"):
        linear(x[:, :19], w)
    with pytest.raises(ValueError, match=r"linear: w: got \(20,\)"):
        linear(x, w[0])
    with pytest.raises(ValueError, match=r"linear: bias: got \(20,\).*50"):
        linear(x, w, bias=w[0])


def multi_head_attention_in_float64(inputs, weights, num_heads, mask):
    """Project query, key and value, cut them into heads, attend, join the heads, project."""
    *w, w_out = (to_float64(weight) for weight in weights)
    projected = [to_float64(x) @ matrix.T for x, matrix in zip(inputs, w, strict=True)]
    N, L, hidden = projected[0].shape
    heads = [x.reshape(N, L, num_heads, -1).swapaxes(1, 2) for x in projected]
    attended = oracle.attention(*heads, mask=None if mask is None else to_float64(mask)).out
    return attended.swapaxes(1, 2).reshape(N, L, hidden) @ w_out.T


@on_each_device
@in_each_precision
@pytest.mark.parametrize("num_heads", [1, 4])
@pytest.mark.parametrize("mask_shape", ["none", "1", "L,L", "N,heads,L,L"])
def test_task_2_multi_head_attention_attends_in_each_head(stream, precision, num_heads, mask_shape):
    """Each head sees its own part of the hidden vector; a mask is spread over [N, heads, L, L]."""
    N, L, hidden = 3, 70, 32
    inputs = [normal(N, L, hidden, dtype=precision, seed=i) for i in range(3)]
    weights = [normal(hidden, hidden, dtype=precision, seed=3 + i) * hidden**-0.5 for i in range(4)]
    shape = {"none": None, "1": (1,), "L,L": (L, L), "N,heads,L,L": (N, num_heads, L, L)}[mask_shape]
    mask = None if shape is None else normal(*shape, dtype=precision, seed=9)
    with mx.stream(stream):
        result = SimpleMultiHeadAttention(hidden, num_heads, *weights)(*inputs, mask=mask)
        expected = multi_head_attention_in_float64(inputs, weights, num_heads, mask)
        assert_layer_close(result, expected, precision)


def test_task_2_multi_head_attention_refuses_invalid_arguments():
    """The number of heads must divide the hidden size, and every weight must be square."""
    weights = [mx.zeros((32, 32))] * 4
    with pytest.raises(ValueError, match="5"):
        SimpleMultiHeadAttention(32, 5, *weights)
    with pytest.raises(ValueError, match="31"):
        SimpleMultiHeadAttention(32, 4, *weights[:3], mx.zeros((32, 31)))
