"""Which part of a model each rank has: all parts together are the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from tiny_llm.errors import LoadError
from tiny_llm.loading.config import ModelConfig, Quantization
from tiny_llm.loading.weights.header import read_header
from tiny_llm.loading.weights.layout import layout
from tiny_llm.loading.weights.random_model import random_config
from tiny_llm.loading.weights.read import read_slice
from tiny_llm.loading.weights.share import Slice, head_range, share_of
from tiny_llm.runtime.ranks import Ranks

SMALL = random_config("qwen2-0.5b")  # 14 query heads and 2 heads of keys


def shares(config: ModelConfig, size: int, kind: str = "tensor"):
    return [share_of(config, Ranks(kind, rank, size, None)) for rank in range(size)]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "expected"),
    [
        (14, 2, 2, [(7, 1), (7, 1)]),
        (14, 2, 4, [(3, 1), (4, 1), (3, 1), (4, 1)]),
        (14, 2, 3, [(3, 1), (4, 1), (7, 1)]),
        (16, 8, 4, [(4, 2)] * 4),
        (16, 8, 3, [(6, 3), (6, 3), (4, 2)]),
    ],
)
def test_heads_are_divided_with_the_heads_of_keys_that_they_use(heads, kv_heads, size, expected) -> None:
    group = heads // kv_heads
    seen = []
    for rank in range(size):
        own_kv, own = head_range(heads, kv_heads, Ranks("tensor", rank, size, None))
        assert {head // group for head in own} == set(own_kv)
        seen += own
        assert (len(own), len(own_kv)) == expected[rank]
    assert seen == list(range(heads))


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("model", ["qwen2-0.5b", "qwen3-0.6b", "qwen2-7b"])
def test_the_slices_of_all_ranks_are_the_matrix(model, size) -> None:
    config = random_config(model)
    every = shares(config, size)
    for name, part in layout(config).items():
        slices = [share.parts[name] for share in every]
        if slices[0] is None:
            assert slices == [None] * size  # norms are whole everywhere
            continue
        if not name.endswith(("k_proj", "v_proj")) or config.num_key_value_heads >= size:
            assert [each.start for each in slices[1:]] == [each.stop for each in slices[:-1]]
        assert (slices[0].start, slices[-1].stop) == (0, part[slices[0].axis])
        assert all(each.size == part[each.axis] and each.start < each.stop for each in slices)
        if slices[0].axis == 1:  # whole groups of packed weights
            assert all(each.start % 64 == 0 for each in slices)


@pytest.mark.parametrize("tied", [True, False])
def test_the_stages_of_a_pipeline_are_the_model_and_rank_0_is_the_last(tied) -> None:
    config = replace(SMALL, tie_word_embeddings=tied)
    every = shares(config, 5, "pipeline")
    layers = [
        {int(name.split(".")[2]) for name in share.parts if name.startswith("model.layers.")}
        for share in every
    ]
    assert [len(each) for each in layers] == [share.config.num_hidden_layers for share in every]
    assert sorted(number for each in layers for number in each) == list(range(24))
    assert min(layers[-1]) == 0
    assert max(layers[0]) == 23
    with_embedding = [rank for rank, share in enumerate(every) if "model.embed_tokens" in share.parts]
    assert with_embedding == ([0, 4] if tied else [4])
    assert [rank for rank, share in enumerate(every) if "lm_head" in share.parts] == ([] if tied else [0])


@pytest.mark.parametrize(
    ("config", "size", "kind", "sentence"),
    [
        (SMALL, 15, "tensor", "got 15 ranks, expected at most its 14 heads"),
        (SMALL, 25, "pipeline", "got 25 ranks, expected at most its 24 layers"),
        (replace(SMALL, intermediate_size=128), 4, "tensor", "got 4 ranks, expected at most 2"),
        (replace(SMALL, vocab_size=3), 4, "tensor", "got 4 ranks, too many for 3 tokens"),
        (
            replace(SMALL, quantization=Quantization(128, 4)),
            4,
            "tensor",
            "expected a multiple of 128, the group size",
        ),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused(config, size, kind, sentence) -> None:
    with pytest.raises(LoadError, match=sentence):
        shares(config, size, kind)


@pytest.mark.parametrize("dtype", [mx.uint32, mx.bfloat16, mx.float32])
def test_a_slice_of_a_file_is_the_slice_of_the_array(tmp_path: Path, dtype: mx.Dtype) -> None:
    array = mx.arange(12 * 16).reshape(12, 16).astype(dtype)
    path = tmp_path / "some.safetensors"
    mx.save_safetensors(str(path), {"before": mx.ones(3), "a": array})
    entry = read_header(path, "some")["a"]
    with path.open("rb") as file:
        for axis, start, stop in [(0, 0, 5), (0, 7, 12), (1, 0, 4), (1, 9, 16)]:
            got = read_slice(file.fileno(), entry, Slice(axis, start, stop, array.shape[axis]))
            want = array[start:stop] if axis == 0 else array[:, start:stop]
            assert got.dtype == dtype
            assert mx.array_equal(got, want)
