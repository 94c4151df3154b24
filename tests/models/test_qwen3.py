"""The differences of Qwen3: norms of the heads, its own head size, and bfloat16."""

import mlx.core as mx
import pytest

from tiny_llm import qwen3
from tiny_llm.kv_cache import TinyKvFullCache
from tiny_llm.models import dispatch_model
from tiny_llm.paged_kv_cache import TinyKvPagedCache
from tiny_llm.quantize import QuantizedWeights

from ..support.models.checkpoints import checkpoint, tokens


def test_the_models_of_all_weeks_compute_in_bfloat16():
    weights, inputs = checkpoint("qwen3", layers=2), tokens(1, 5)
    without = dispatch_model("a folder", weights, 1)
    assert without.precision == without(inputs).dtype == mx.bfloat16
    for week, cache_class in {2: TinyKvFullCache, 3: TinyKvPagedCache}.items():
        model = dispatch_model("a folder", weights, week)
        cache = model.create_kv_cache()
        assert [type(layer) for layer in cache] == [cache_class] * 2
        assert model.precision == model(inputs, 0, cache).dtype == mx.bfloat16


def test_the_head_size_is_independent_of_the_hidden_size():
    attention = qwen3.Qwen3Model(checkpoint("qwen3", layers=1)).layers_inner[0].self_attn
    assert attention.head_dim == attention.query_norm.dim == attention.key_norm.dim == 64
    assert attention.hidden_size // attention.num_heads == 32
    assert attention.wo.shape == (128, 4 * 64)


def test_weights_of_another_type_are_an_error():
    array = mx.zeros(3, mx.float16)
    assert qwen3.assert_dtype(array, mx.float16) is array
    with pytest.raises(ValueError, match="float16, expected"):
        qwen3.assert_dtype(array, mx.bfloat16)


@pytest.mark.parametrize("other", ["scales", "biases"])
def test_packed_weights_of_another_type_are_an_error(other):
    weights = QuantizedWeights.from_mlx_layer(checkpoint(layers=1).model.embed_tokens)
    assert qwen3.assert_quantized_weights_dtype(weights, mx.bfloat16) is weights
    setattr(weights, other, getattr(weights, other).astype(mx.float32))
    with pytest.raises(ValueError, match=f"{other} .*float32"):
        qwen3.assert_quantized_weights_dtype(weights, mx.bfloat16)
