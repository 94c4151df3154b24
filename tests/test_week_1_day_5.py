"""Week 1, day 5: the embedding, which turns tokens into vectors and vectors into scores of tokens."""

import mlx.core as mx
import numpy as np
import pytest

from .support.cases import normal
from .support.tolerance import to_float64
from .tiny_llm_base import Embedding
from .utils import assert_layer_close, in_each_precision, on_each_device


@on_each_device
@in_each_precision
@pytest.mark.parametrize("dtype", [mx.int32, mx.uint8, mx.uint32, mx.int64], ids=str)
@pytest.mark.parametrize("shape", [(), (33,), (3, 0), (2, 3, 5)], ids=str)
def test_task_2_embedding_looks_up_rows(stream, precision, dtype, shape):
    """Any number of ids in any integer type: each gives its row of the table, bit for bit."""
    weight = normal(300, 20, dtype=precision)
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


def test_task_2_embedding_refuses_what_does_not_fit():
    """The table has the announced size, ids are integers, and vectors have the size of a row."""
    with pytest.raises(ValueError, match=r"Embedding: weight: got shape \(20, 300\).*\(300, 20\)"):
        Embedding(300, 20, mx.zeros((20, 300)))
    embedding = Embedding(300, 20, mx.zeros((300, 20)))
    with pytest.raises(TypeError, match="float32"):
        embedding(mx.zeros(3))
    with pytest.raises(ValueError, match=r"\(3, 19\).*20"):
        embedding.as_linear(mx.zeros((3, 19)))
