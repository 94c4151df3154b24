"""The recorded attention of a prompt: right weights, right heads, and entropy in bits."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import ArgumentError, NumericError, Qwen3Model
from tiny_llm.course.model import load_model
from tiny_llm.models.weights import multiply
from tiny_llm_tools.profile import entropy, record_attention
from tiny_llm_tools.profile.attention_weights import layer_attention

from ...support.attention import oracle
from ...support.models.checkpoints import checkpoint

IDS = [1, 30, 31, 32, 9, 40, 17, 25, 3]


@pytest.fixture(scope="module", params=["qwen2", "qwen3"])
def model(request: pytest.FixtureRequest) -> Any:
    """Qwen3 also has a norm of each head."""
    if request.param == "qwen3":
        return Qwen3Model(checkpoint("qwen3"), True, dtype=mx.float32)
    return load_model("tiny", mx.float32, enable_flash_attn=True)[0]


def test_a_row_sums_to_one_and_sees_no_later_key(model: Any) -> None:
    layers = record_attention(model, IDS)
    assert len(layers) == model.num_hidden_layers
    for layer in layers:
        weights = np.array(layer.weights)
        assert weights.shape == (4, len(IDS), len(IDS))
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
        assert (weights[:, np.triu(np.ones(weights.shape[1:], bool), 1)] == 0).all()
        assert np.isneginf(np.array(layer.scores)[:, 0, 1:]).all()


def test_weights_and_values_give_the_output_of_the_layer(model: Any) -> None:
    """Also the head map of grouped-query attention: two query heads share a key/value head."""
    first = record_attention(model, IDS)[0]
    block = model.layers_inner[0]
    joined = mx.flatten((first.weights @ first.value).swapaxes(0, 1), -2, -1)
    found = multiply(joined[None], block.self_attn.wo)
    x = model.embedding(mx.array([IDS]))
    cache = model.create_kv_cache()[0]
    expected = block.self_attn.forward(x, 0, cache, "causal", norm=block.input_layernorm)
    np.testing.assert_allclose(np.array(found), np.array(expected), atol=2e-5)


def test_scores_and_weights_equal_the_oracle() -> None:
    query, key, value = mx.random.normal((6, 5, 8)), mx.random.normal((2, 5, 8)), mx.random.normal((2, 5, 8))
    found = layer_attention(query, key, value)
    arrays = [np.array(each)[None].astype(np.float64) for each in (query, key, value)]
    expected = oracle.attention(*arrays, causal=True)
    np.testing.assert_allclose(np.array(found.weights @ found.value), expected.out[0], atol=1e-5)
    lse = mx.logsumexp(found.scores, axis=-1)
    np.testing.assert_allclose(np.array(lse), expected.lse[0], atol=1e-5)


def test_entropy_is_in_bits() -> None:
    rows = mx.array([[1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [0.5, 0.25, 0.25, 0]])
    assert entropy(rows).tolist() == [0, 2, 1, 1.5]
    skewed = [0.7, 0.2, 0.1]
    expected = -sum(weight * math.log2(weight) for weight in skewed)
    assert entropy(mx.array(skewed)).item() == pytest.approx(expected, abs=1e-6)


def test_nan_in_the_weights_of_a_model_is_an_error() -> None:
    model = load_model("tiny", mx.float32, enable_flash_attn=True)[0]
    norm = model.layers_inner[5].input_layernorm
    norm.weight = norm.weight * mx.nan
    with pytest.raises(NumericError):
        record_attention(model, IDS)


def test_progress_counts_the_layers(model: Any) -> None:
    seen: list[tuple[int, int | None]] = []
    record_attention(model, IDS, lambda task, done, total: seen.append((done, total)))
    count = model.num_hidden_layers
    assert seen == [(layer, count) for layer in range(count)]


def test_a_prompt_without_tokens_and_a_model_without_a_cache_are_refused(model: Any) -> None:
    with pytest.raises(ArgumentError, match=r"record_attention: tokens: got none, expected at least one"):
        record_attention(model, [])
    with pytest.raises(TypeError, match=r"record_attention: model: got a str, expected a model with a KV"):
        record_attention("tiny", IDS)
