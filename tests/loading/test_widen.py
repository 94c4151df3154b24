"""Matrices of 2, 3, 5 and 6 bits are kept in 4 and 8: the same numbers, on one rank and on several."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.loading import load
from tiny_llm.loading.config import WIDTHS, Quantization
from tiny_llm.loading.weights import widen as widening
from tiny_llm.loading.weights.tree import named_parts
from tiny_llm.loading.weights.widen import widen
from tiny_llm.runtime.ranks import Ranks

from ..support.models.checkpoints import checkpoint
from .folders import change_json, write_folder

NARROW = [bits for bits, wide in WIDTHS.items() if wide != bits]


@pytest.mark.parametrize("at_a_time", [8, 1000, 2**18])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("bits", NARROW)
def test_no_number_changes(
    bits: int, group_size: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widening, "NUMBERS", at_a_time)
    weights = mx.array(np.random.default_rng(bits).standard_normal((40, 384)).astype(np.float32))
    words, scales, biases = mx.quantize(weights, group_size, bits)
    wide = widen(words, Quantization(group_size, bits))
    assert (wide.dtype, wide.shape) == (mx.uint32, (40, 384 * WIDTHS[bits] // 32))
    expected = mx.dequantize(words, scales, biases, group_size, bits)
    assert mx.array_equal(mx.dequantize(wide, scales, biases, group_size, WIDTHS[bits]), expected)
    assert (
        len(np.unique(np.array(expected[0, :group_size]))) > min(2**bits, group_size) // 3
    )  # many levels occur in a group


def test_a_matrix_may_be_narrower_than_the_others(tmp_path: Path) -> None:
    """As in the mixed recipes of mlx-lm."""
    weights, narrower = (checkpoint(layers=2, bits=bits) for bits in (6, 3))
    weights.model.layers[1].mlp.up_proj = narrower.model.layers[1].mlp.up_proj
    folder = write_folder(tmp_path, weights)
    exceptions = {"model.layers.1.mlp.up_proj": {"group_size": 64, "bits": 3}}
    change_json(folder, "config.json", quantization={"group_size": 64, "bits": 6} | exceptions)
    loaded = load(str(folder))
    assert loaded.config.quantization == Quantization(64, 8)
    found = {name: part.bits for name, part in named_parts(loaded.mlx_model) if hasattr(part, "bits")}
    assert found.pop("model.layers.1.mlp.up_proj") == 4
    assert set(found.values()) == {8}


@pytest.mark.parametrize("bits", NARROW)
def test_each_rank_has_its_part_of_them(bits: int, tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path, checkpoint(layers=1, bits=bits, group_size=32)))
    whole = load(folder).mlx_model.model.layers[0]
    parts = [load(folder, ranks=Ranks("tensor", rank, 2, None)).mlx_model.model.layers[0] for rank in (0, 1)]
    for axis, matrix in ((0, "up_proj"), (1, "down_proj")):
        joined = mx.concatenate([getattr(part.mlp, matrix).weight for part in parts], axis)
        assert mx.array_equal(joined, getattr(whole.mlp, matrix).weight)
