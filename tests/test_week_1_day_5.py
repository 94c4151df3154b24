"""Week 1, day 5: the block, the embedding, which turns tokens into vectors and back, and the whole model."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.cache.base import NoCache

from .support.cases import normal
from .support.models import decoder
from .support.models.checkpoints import checkpoint, tokens
from .support.models.layer_arguments import block_arguments, one_layer
from .support.models.logits import assert_logits
from .support.tolerance import to_float64
from .tiny_llm_base import Embedding, Qwen2ModelWeek1, dequantize_linear, qwen2_week1
from .utils import assert_layer_close, assert_rounded_once, in_each_precision, on_each_device


@on_each_device
@in_each_precision
@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("length", [33, 70])
def test_task_1_block_adds_attention_and_feed_forward(stream, precision, mask, length):
    """Each after its norm, and each added to its input."""
    model = one_layer()
    x = normal(2, length, 128, dtype=precision)
    with mx.stream(stream):
        block = qwen2_week1.Qwen2TransformerBlock(**block_arguments(model, precision, packed=False))
        expected = decoder.block(to_float64(x), model.layer, model.args, mask)
        if precision == mx.float32:  # four sums of up to 192 terms one after the other
            np.testing.assert_allclose(to_float64(block(x, mask)), expected, rtol=1e-5, atol=1e-5)
        else:
            assert_layer_close(block(x, mask), expected, precision)


def test_task_1_block_shows_its_parts():
    """The names by which the other chapters reach them."""
    block = qwen2_week1.Qwen2TransformerBlock(**block_arguments(one_layer(), packed=False))
    assert isinstance(block.self_attn, qwen2_week1.Qwen2MultiHeadAttention)
    assert isinstance(block.mlp, qwen2_week1.Qwen2MLP)
    assert block.input_layernorm.eps == block.post_attention_layernorm.eps == 1e-6


@on_each_device
@in_each_precision
@pytest.mark.parametrize("dtype", [mx.int32, mx.uint8, mx.uint32, mx.int64], ids=str)
def test_task_2_embedding_looks_up_rows(stream, precision, dtype):
    """Any number of ids in any integer type: each gives its row of the table, bit for bit."""
    weight = normal(300, 20, dtype=precision)
    for shape in ((33,), (), (3, 0), (2, 3, 5)):
        ids = np.random.default_rng(0).integers(0, 256, shape)
        with mx.stream(stream):
            vectors = Embedding(300, 20, weight)(mx.array(ids, dtype=dtype))
            assert vectors.dtype == precision
            assert np.array_equal(to_float64(vectors), to_float64(weight)[ids])


@on_each_device
def test_task_2_embedding_of_unknown_tokens_is_nan(stream):
    """Outside the table there are other numbers of this process, and they must not be read."""
    ids = mx.array([0, -1, 299, 300, 2**31 - 1, -(2**31)])
    with mx.stream(stream):
        vectors = to_float64(Embedding(300, 20, normal(300, 20))(ids))
    assert np.isnan(vectors).all(axis=-1).tolist() == [False, True, False, True, True, True]
    assert np.isfinite(vectors[[0, 2]]).all()


@on_each_device
@in_each_precision
@pytest.mark.parametrize("shape", [(20,), (2, 33, 20)], ids=str)
def test_task_2_embedding_as_linear_scores_every_token(stream, precision, shape):
    """The same table, read as the weights of a linear map without bias."""
    x, weight = normal(*shape, dtype=precision, seed=1), normal(300, 20, dtype=precision, seed=2) * 20**-0.5
    with mx.stream(stream):
        logits = Embedding(300, 20, weight).as_linear(x)
        assert_layer_close(logits, to_float64(x) @ to_float64(weight).T, precision)


def test_task_2_embedding_refuses_invalid_arguments():
    """The table has the announced size, ids are integers, and vectors have the size of a row."""
    with pytest.raises(ValueError, match=r"Embedding: weight: got \(20, 300\).*\(300, 20\)"):
        Embedding(300, 20, mx.zeros((20, 300)))
    embedding = Embedding(300, 20, mx.zeros((300, 20)))
    with pytest.raises(ValueError, match="float32"):
        embedding(mx.zeros(3))
    with pytest.raises(ValueError, match=r"\(3, 19\).*20"):
        embedding.as_linear(mx.zeros((3, 19)))


@on_each_device
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_task_3_dequantize_linear_unpacks_a_layer(stream, bits, dtype):
    """Each number times the scale of its group, plus its bias, in the type of the scales."""
    layer = one_layer(bits=bits, scale_dtype=dtype).layer.mlp.up_proj
    with mx.stream(stream):
        assert_rounded_once(dequantize_linear(layer), decoder.dense(layer), dtype)


@pytest.mark.parametrize(("name", "value"), [("biases", None), ("mode", "mxfp4")])
def test_task_3_dequantize_linear_refuses_other_formats(name, value):
    """Without a bias for each group, the packed numbers mean something else."""
    layer = one_layer().layer.mlp.up_proj
    setattr(layer, name, value)
    with pytest.raises(ValueError, match=f"{name}: got"):
        dequantize_linear(layer)


@on_each_device
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 70), (3, 33)], ids=str)
def test_task_3_model_scores_the_next_token(stream, tied, shape):
    """Embedding, causal blocks, norm, and a head that is the embedding itself or a matrix of its own."""
    weights = checkpoint(tied=tied)
    inputs = tokens(*shape)
    with mx.stream(stream):
        logits = Qwen2ModelWeek1(weights, dtype=mx.float32)(inputs)
        assert_logits(logits, decoder.logits(inputs, weights), tolerance=1e-4)


@on_each_device
def test_task_3_model_computes_the_last_token_only(stream):
    """The last block and the map to logits leave the other tokens out; earlier blocks need them all."""
    weights = checkpoint()
    inputs = tokens(3, 33)
    with mx.stream(stream):
        model = Qwen2ModelWeek1(weights, dtype=mx.float32)
        assert model.forward(inputs, 0, [NoCache()] * 3, last_only=True).shape == (3, 1, 128)
        assert_logits(model.next_logits(inputs), decoder.logits(inputs, weights)[:, -1], tolerance=1e-4)


@on_each_device
def test_task_3_model_computes_in_float16(stream):
    """The default dtype of Qwen2's activations."""
    weights = checkpoint()
    inputs = tokens(2, 70)
    with mx.stream(stream):
        logits = Qwen2ModelWeek1(weights)(inputs)
        assert logits.dtype == mx.float16
        assert_logits(logits, decoder.logits(inputs, weights), tolerance=2e-2)


def test_task_3_model_shows_its_parts():
    """The attributes that the course uses, from a checkpoint with an untied head and one without."""
    weights = checkpoint(tied=False)
    model = Qwen2ModelWeek1(weights)
    assert (model.num_hidden_layers, model.hidden_size, model.vocab_size) == (3, 128, 96)
    assert (model.precision, model.mlx_model) == (mx.float16, weights)
    assert model.w_lm_head.shape == (96, 128)
    assert len(model.layers_inner) == 3
    assert isinstance(model.layers_inner[0], qwen2_week1.Qwen2TransformerBlock)
    assert Qwen2ModelWeek1(checkpoint(tied=True)).w_lm_head is None


def test_task_3_model_refuses_unsupported_arguments():
    """RoPE scaling of another kind, token ids without a batch axis, an unsupported dtype."""
    weights = checkpoint()
    with pytest.raises(ValueError, match=r"inputs: got \(5,\)"):
        Qwen2ModelWeek1(weights)(mx.zeros(5, mx.int32))
    with pytest.raises(ValueError, match="dtype: got"):
        Qwen2ModelWeek1(weights, dtype=mx.int32)
    weights.args.rope_scaling = {"rope_type": "longrope", "factor": 4.0}
    with pytest.raises(ValueError, match="rope_scaling: rope_type: got 'longrope'"):
        Qwen2ModelWeek1(weights)
