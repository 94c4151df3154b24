"""Models of random weights: the shapes of the real ones, the same numbers every time, sensible sizes."""

from __future__ import annotations

from math import prod

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.course.dispatch import dispatch_model
from tiny_llm.loading import LoadError, load
from tiny_llm.loading.config import Quantization
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.layout import Matrix, layout
from tiny_llm.loading.weights.random_model import SIZES, RandomWords, random_config, random_weights
from tiny_llm.loading.weights.tree import named_arrays, named_parts
from tiny_llm.models.names import SHORTCUTS

# As their model cards and files say; an embedding that is used twice counts once.
PARAMETERS = {
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "mistral-7b": 7_248_023_552,
}


@pytest.fixture(scope="module")
def loaded():
    return load("random:qwen2-0.5b")


def test_there_is_one_for_each_shortcut():
    assert SIZES.keys() == SHORTCUTS.keys() == PARAMETERS.keys()


@pytest.mark.parametrize("shortcut", PARAMETERS)
def test_it_has_as_many_parameters_as_the_real_one(shortcut):
    parts = layout(random_config(shortcut)).values()
    count = sum(
        part.outputs * (part.inputs + part.bias) if isinstance(part, Matrix) else part.size for part in parts
    )
    assert count == PARAMETERS[shortcut]


def test_it_is_packed_in_4_bits_with_bfloat16(loaded):
    assert (loaded.folder, loaded.name) == (None, "random:qwen2-0.5b")
    assert loaded.config.quantization == Quantization(group_size=64, bits=4)
    arrays = {
        key: array
        for name, part in named_parts(loaded.mlx_model)
        for key, array in named_arrays(part, name).items()
    }
    assert {array.dtype for array in arrays.values()} == {mx.uint32, mx.bfloat16}
    matrices = sum(prod(array.shape) * 8 for array in arrays.values() if array.dtype == mx.uint32)
    assert 0 < PARAMETERS["qwen2-0.5b"] - matrices < 200_000  # norms and biases are not packed
    assert loaded.nbytes == sum(array.nbytes for array in arrays.values())


def test_it_is_the_same_every_time(loaded):
    again = random_weights(random_config("qwen2-0.5b"), silent)
    layer = loaded.mlx_model.model.layers[23].mlp.down_proj
    assert mx.array_equal(layer.weight, again["model.layers.23.mlp.down_proj.weight"])


def test_its_weights_are_spread_as_those_of_a_fresh_model(loaded):
    """Mean 0 and variance 1 / inputs in every layer, and no row twice."""
    for part in (loaded.mlx_model.model.layers[7].mlp.up_proj, loaded.mlx_model.model.embed_tokens):
        packed = (part.weight[::97], part.scales[::97], part.biases[::97])
        dense = np.array(mx.dequantize(*packed, 64, 4).astype(mx.float32))
        assert abs(dense.mean()) < 1e-3
        assert dense.var() == pytest.approx(1 / dense.shape[1], rel=0.02)
        assert len(np.unique(np.array(packed[0]), axis=0)) == len(dense)


def test_its_logits_are_finite_and_differ(loaded):
    model = dispatch_model(loaded.name, loaded.mlx_model, 2, dtype=mx.float32, enable_flash_attn=True)
    ids = mx.array([loaded.tokenizer.encode("Hi")])
    logits = model(ids, 0, model.create_kv_cache())[0, -1]
    assert mx.isfinite(logits).all().item()
    assert mx.var(logits).item() > 0.1


def test_random_words_repeat_nothing():
    """A word may come twice, but not with its neighbours."""
    words = RandomWords(seed=0)
    first, second = words.take(1500, 1000).reshape(-1), words.take(1500, 1000).reshape(-1)
    block = 1_000_003
    for a, b in [(first[:block], first[block:]), (first, second)]:
        equal = (a[: b.size] == b[: a.size]).sum().item()
        assert equal < 10


def test_progress_ends_at_the_words_of_all_matrices():
    seen = []
    random_weights(random_config("qwen2-0.5b"), lambda task, done, total: seen.append((task, done, total)))
    assert seen[-1] == ("making weights", seen[-1][2], seen[-1][2])
    assert seen == sorted(seen)


def test_one_that_does_not_fit_into_memory_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("tiny_llm.loading.weights.memory.available_bytes", lambda: 2**30)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    with pytest.raises(
        LoadError, match=r"^random:qwen3-8b: the model needs 4\.3 GiB of memory, and 1\.0 GiB are free"
    ):
        load("random:qwen3-8b")
    assert mx.get_peak_memory() <= before
