"""A watched copy of a model computes the same, and the model stays as it was."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.course.model import load_model
from tiny_llm_tools.profile.observe import observed

IDS = mx.array([[1, 300, 301, 302, 9, 4000, 17]])


@pytest.fixture(scope="module", params=[1, 2])
def model(request: pytest.FixtureRequest) -> Any:
    """With plain attention, and with FlashAttention in fused blocks."""
    return load_model("tiny", mx.float32, enable_flash_attn=request.param == 2)[0]


def test_the_copy_computes_the_same_logits(model: Any) -> None:
    calls: list[int] = []
    watched = observed(model, lambda layer, *arrays: calls.append(layer))
    own, copied = (each(IDS, 0, model.create_kv_cache()) for each in (model, watched))
    assert mx.array_equal(own, copied).item()
    assert calls == list(range(model.num_hidden_layers))


def test_the_model_itself_is_not_observed_and_does_not_change(model: Any) -> None:
    before = [(block, block.self_attn, block.self_attn.ops) for block in model.layers_inner]

    def fail(layer: int, query: mx.array, key: mx.array, value: mx.array) -> None:
        raise AssertionError("the model was observed")

    observed(model, fail)
    model(IDS, 0, model.create_kv_cache())
    assert [(block, block.self_attn, block.self_attn.ops) for block in model.layers_inner] == before
