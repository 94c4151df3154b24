"""Week 1, day 3: attention in which groups of query heads share a key/value head, masks, and the layer."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.cache.base import NoCache

from .support.cases import DTYPE_IDS, DTYPES, normal, qkv, random_mask
from .support.models import decoder
from .support.models.layer_arguments import attention_arguments, one_layer
from .support.tolerance import to_float64
from .tiny_llm_base import causal_mask, qwen2_week1, scaled_dot_product_attention_grouped
from .utils import (
    assert_layer_close,
    assert_rounded_once,
    attention_in_float64,
    in_each_precision,
    on_each_device,
)

# Numbers of queries and keys: above 32, no multiples of 32; fewer queries than keys, as many, and more.
LENGTHS = [(33, 65), (70, 131), (257, 300), (65, 65), (65, 33), (1, 257)]


def check_grouped(stream, inputs, scale=None, mask=None):
    """Grouped attention equals the oracle, in the type of the query; returns the result."""
    with mx.stream(stream):
        result = scaled_dot_product_attention_grouped(*inputs, scale=scale, mask=mask)
        assert_rounded_once(result, attention_in_float64(*inputs, scale, mask), inputs[0].dtype)
    return result


@on_each_device
def test_task_1_grouped_attention_reads_the_shared_head(stream):
    """Query heads 0, 1, 2 read key/value head 0, and heads 3, 4, 5 head 1: h // (H_q / H), not h % H."""
    query, key = mx.zeros((6, 1, 4)), mx.zeros((2, 3, 4))
    value = mx.broadcast_to(mx.array([10.0, 11.0])[:, None, None], (2, 3, 1))
    with mx.stream(stream):
        result = scaled_dot_product_attention_grouped(query, key, value)
    assert result.tolist() == [[[10.0]]] * 3 + [[[11.0]]] * 3


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (5, 1)])
def test_task_1_grouped_attention_follows_the_formula(stream, dtype, heads, kv_heads):
    """Softmax of the scaled scores, under any number of batch dimensions."""
    for batch in ((3,), (), (2, 3)):
        check_grouped(stream, qkv(batch=batch, heads=heads, kv_heads=kv_heads, L=33, S=65, E=20, dtype=dtype))


@on_each_device
@pytest.mark.parametrize(("L", "S"), LENGTHS)
def test_task_1_grouped_attention_of_any_lengths(stream, L, S):
    """However many queries and keys there are."""
    check_grouped(stream, qkv(heads=6, kv_heads=2, L=L, S=S, E=20))


@on_each_device
@pytest.mark.parametrize("as_array", [False, True], ids=["number", "array"])
def test_task_1_grouped_attention_with_a_given_scale(stream, as_array):
    """The scale replaces D ** -0.5; an array without dimensions is as good as a Python number."""
    inputs = qkv(L=33, S=65)
    with mx.stream(stream):
        result = scaled_dot_product_attention_grouped(*inputs, mx.array(0.1) if as_array else 0.1)
        assert_rounded_once(result, attention_in_float64(*inputs, 0.1), mx.float32)


@on_each_device
def test_task_1_grouped_attention_takes_any_memory_layout(stream):
    """Projections come as [B, L, H, D] and are transposed; a slice of a cache has gaps."""
    query = normal(2, 70, 4, 64, seed=1).swapaxes(1, 2)
    key = normal(2, 131, 2, 64, seed=2).swapaxes(1, 2)
    value = normal(2, 2, 150, 64, seed=3)[:, :, 10:141]
    check_grouped(stream, (query, key, value))


@on_each_device
def test_task_1_grouped_attention_does_not_repeat_keys_and_values(stream):
    """Two key heads of 1 MB each serve 16 query heads; copied out for each, they would take 16 MB."""
    inputs = qkv(batch=(1,), heads=16, kv_heads=2, L=1, S=2048, E=128)
    mx.eval(inputs)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    check_grouped(stream, inputs)
    assert mx.get_peak_memory() - before < 4 * inputs[1].nbytes


@on_each_device
def test_task_1_grouped_attention_holds_scores_in_float32(stream):
    """Scores of 10^5 do not fit into float16, which ends at 65504; the result does."""
    query, key, value = qkv(L=33, S=65, dtype=mx.float16)
    whole = (mx.round(query * 100), mx.round(key * 100))  # sums of whole numbers are exact
    check_grouped(stream, (*whole, value), scale=1.0)


@on_each_device
def test_task_1_grouped_attention_over_no_keys_is_zero(stream):
    """S = 0 hides all keys from all queries, and L = 0 leaves nothing to calculate."""
    assert (to_float64(check_grouped(stream, qkv(L=33, S=0))) == 0).all()
    assert check_grouped(stream, qkv(L=0, S=65)).shape == (2, 4, 0, 32)


def test_task_1_grouped_attention_refuses_invalid_arguments():
    """Heads that do not divide, other batches, other head sizes: a ValueError that shows the sizes."""
    query, key, value = qkv(heads=6, kv_heads=4)
    with pytest.raises(ValueError, match=r"6.*4|4.*6"):
        scaled_dot_product_attention_grouped(query, key, value)
    query, key, value = qkv(L=33, S=65)
    with pytest.raises(ValueError, match="31"):
        scaled_dot_product_attention_grouped(query, key[..., :31], value)
    with pytest.raises(ValueError, match="64"):
        scaled_dot_product_attention_grouped(query, key, value[:, :, :64])
    with pytest.raises(ValueError, match=r"\(1, 2, 65, 32\)"):
        scaled_dot_product_attention_grouped(query, key[:1], value[:1])


@on_each_device
@in_each_precision
def test_task_2_causal_mask_is_aligned_at_the_lower_right(stream, precision):
    """The last query sees every key, the one before it all but the last key, and so on."""
    o, x = 0, -np.inf
    with mx.stream(stream):
        for expected in (
            [[o, x, x], [o, o, x], [o, o, o]],
            [[o, o, o, x, x], [o, o, o, o, x], [o, o, o, o, o]],
            [[x, x, x], [x, x, x], [o, x, x], [o, o, x], [o, o, o]],
        ):
            mask = causal_mask(len(expected), len(expected[0]), precision)
            assert mask.dtype == precision
            assert np.array_equal(to_float64(mask), expected)


@on_each_device
@in_each_precision
@pytest.mark.parametrize(("L", "S"), LENGTHS)
def test_task_2_grouped_attention_takes_causal_by_name(stream, precision, L, S):
    """With more queries than keys, the first L - S of them see no key and give zeros."""
    inputs = qkv(L=L, S=S, dtype=precision)
    result = check_grouped(stream, inputs, mask="causal")
    assert (to_float64(result)[:, :, : max(L - S, 0)] == 0).all()
    with mx.stream(stream):
        by_array = scaled_dot_product_attention_grouped(*inputs, mask=causal_mask(L, S, precision))
        assert_rounded_once(by_array, to_float64(result), precision)


@on_each_device
@in_each_precision
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_task_2_grouped_attention_spreads_a_mask_over_missing_dimensions(stream, precision, kind):
    """A float mask is added to the scaled scores; a bool mask keeps the keys that it marks True."""
    inputs = qkv(batch=(2,), L=70, S=131, dtype=precision)
    for shape in ((70, 131), (131,), (2, 1, 1, 131), (4, 70, 1), (2, 4, 70, 131)):
        mask = random_mask(*shape) if kind == "bool" else normal(*shape, dtype=precision, seed=9)
        check_grouped(stream, inputs, mask=mask)


@on_each_device
def test_task_2_grouped_attention_spreads_a_mask_over_five_dimensions(stream):
    """The mask's heads are the query's heads, also below two batch dimensions."""
    inputs = qkv(batch=(2, 3), heads=6, kv_heads=2, L=33, S=65)
    check_grouped(stream, inputs, mask=normal(3, 6, 33, 65, seed=9))
    check_grouped(stream, inputs, mask=random_mask(2, 1, 6, 1, 65))


@on_each_device
@in_each_precision
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_task_2_grouped_attention_gives_zeros_to_a_query_that_sees_no_key(stream, precision, kind):
    """Every fourth query is hidden from all keys, and no query sees the first 40 keys."""
    mask = (mx.arange(70)[:, None] % 4 > 0) & (mx.arange(131) >= 40)
    if kind == "float":
        mask = mx.where(mask, 0.0, -mx.inf).astype(precision)
    result = check_grouped(stream, qkv(L=70, S=131, dtype=precision), mask=mask)
    assert (to_float64(result)[:, :, ::4] == 0).all()


def test_task_2_grouped_attention_refuses_masks_it_cannot_read():
    """Integers could mean either kind of mask; a string is "causal" or a mistake; shapes must spread."""
    inputs = qkv(L=33, S=65)
    with pytest.raises(ValueError, match="int32"):
        scaled_dot_product_attention_grouped(*inputs, mask=mx.ones((33, 65), dtype=mx.int32))
    with pytest.raises(ValueError, match="casual"):
        scaled_dot_product_attention_grouped(*inputs, mask="casual")
    with pytest.raises(ValueError, match=r"33.*64"):
        scaled_dot_product_attention_grouped(*inputs, mask=mx.zeros((33, 64)))


@on_each_device
@in_each_precision
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("length", [1, 33, 70])
def test_task_3_attention_layer_projects_rotates_and_attends(stream, precision, mask, length):
    """Queries, keys and values get their bias and, but for the values, their rotation."""
    model = one_layer()
    x = normal(2, length, 128, dtype=precision)
    with mx.stream(stream):
        layer = qwen2_week1.Qwen2MultiHeadAttention(**attention_arguments(model, precision, packed=False))
        expected = decoder.attention(to_float64(x), model.layer.self_attn, model.args, mask)
        assert_layer_close(layer(x, mask), expected, precision)


@on_each_device
def test_task_3_attention_layer_takes_an_array_mask(stream):
    """One that is written out is as good as one by name."""
    model = one_layer()
    x = normal(2, 33, 128)
    with mx.stream(stream):
        layer = qwen2_week1.Qwen2MultiHeadAttention(**attention_arguments(model, packed=False))
        by_array = layer(x, causal_mask(33, 33, mx.float32))
        assert_layer_close(by_array, to_float64(layer(x, "causal")), mx.float32)


@on_each_device
@in_each_precision
def test_task_3_attention_layer_of_the_last_token_only(stream, precision):
    """With `last_only` there is one token for each row, and only its part of the residual is added."""
    model = one_layer()
    x, residual = normal(2, 33, 128, dtype=precision), normal(2, 33, 128, dtype=precision, seed=2)
    with mx.stream(stream):
        layer = qwen2_week1.Qwen2MultiHeadAttention(**attention_arguments(model, precision, packed=False))
        expected = decoder.attention(to_float64(x), model.layer.self_attn, model.args, "causal")
        for last_only, tokens in ((False, slice(None)), (True, slice(-1, None))):
            result = layer.forward(x, 0, NoCache(), "causal", residual=residual, last_only=last_only)
            assert_layer_close(result, (expected + to_float64(residual))[:, tokens], precision)


def test_task_3_attention_layer_refuses_invalid_arguments():
    """Heads that share out neither the hidden size nor each other, other weights, too many tokens."""
    model = one_layer(max_position_embeddings=64)
    arguments = attention_arguments(model, packed=False)
    for wrong in ({"num_heads": 3}, {"num_kv_heads": 3}, {"wk": arguments["wq"]}, {"hidden_size": 64}):
        with pytest.raises(ValueError, match=r"Qwen2MultiHeadAttention: .*got .*expected"):
            qwen2_week1.Qwen2MultiHeadAttention(**arguments | wrong)
    with pytest.raises(ValueError, match=r"0\.\.63"):
        qwen2_week1.Qwen2MultiHeadAttention(**arguments | {"max_seq_len": 64})(normal(1, 65, 128))
