"""What the configs of families say that Qwen's do not."""

from __future__ import annotations

from typing import Any

import pytest

from tiny_llm.loading import LoadError
from tiny_llm.loading.config import ModelConfig, check_config

from ..support.models.checkpoints import checkpoint
from .folders import config_of


def config(family: str, **changes: Any) -> ModelConfig:
    """Of a small model; None removes a field."""
    given = config_of(checkpoint(family, layers=1, max_position_embeddings=4096)) | changes
    return check_config({name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_the_first_llamas_leave_out_what_others_must_say(family: str) -> None:
    read = config(family, num_key_value_heads=None, rope_theta=None, head_dim=None, tie_word_embeddings=None)
    assert (read.num_key_value_heads, read.rope_theta, read.head_dim) == (4, 1e4, 32)
    assert read.tie_word_embeddings is False
    for name in ("num_key_value_heads", "rope_theta", "tie_word_embeddings"):
        with pytest.raises(LoadError, match=name):
            config("qwen3", **{name: None})


@pytest.mark.parametrize(("window", "context"), [(None, 4096), (1024, 1024), (4096, 4096), (9999, 4096)])
def test_a_text_of_mistral_ends_where_its_window_would_hide_a_key(window: int | None, context: int) -> None:
    assert config("mistral", sliding_window=window).max_position_embeddings == context


@pytest.mark.parametrize("window", [0, "1024", True])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    with pytest.raises(LoadError, match=r"sliding_window: got .*, expected a whole number from 1 to"):
        config("mistral", sliding_window=window)


@pytest.mark.parametrize("name", ["attention_bias", "mlp_bias"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_biases_that_would_be_left_out_are_refused(family: str, name: str) -> None:
    assert not config(family, **{name: False}).end_tokens
    with pytest.raises(LoadError, match=f"{name}: got True, expected false for {family}"):
        config(family, **{name: True})


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["llama3", "linear"])
def test_a_scaling_keeps_the_context_of_the_config(key: str, kind: str) -> None:
    scaling = {"rope_type": kind, "factor": 8.0}
    if kind == "llama3":
        frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        scaling |= frequencies | {"original_max_position_embeddings": 512}
    read = config("llama", **{key: scaling})
    assert (read.max_position_embeddings, read.rope_scaling) == (4096, scaling)


def test_a_window_beside_scaled_positions_is_refused() -> None:
    """Its context would be that of the scaling."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    assert config("mistral", rope_scaling=yarn).max_position_embeddings == 16384
    with pytest.raises(LoadError, match="sliding_window: got 1024, expected at least 16384, or null"):
        config("mistral", sliding_window=1024, rope_scaling=yarn)


def test_the_context_of_the_training_may_stand_beside_the_scaling() -> None:
    given = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    name = "original_max_position_embeddings"
    read = config("llama", rope_scaling=given, **{name: 512})
    assert read.rope_scaling == given | {name: 512}
    with pytest.raises(LoadError, match=f"{name}: got 256, expected 512, as beside it"):
        config("llama", rope_scaling=given | {name: 256}, **{name: 512})
    assert config("llama", **{name: 512}).rope_scaling is None


@pytest.mark.parametrize("name", ["partial_rotary_factor", "rope_traditional"])
def test_positions_of_another_kind_are_refused(name: str) -> None:
    value: Any = 0.5 if name == "partial_rotary_factor" else True
    with pytest.raises(LoadError, match=f"{name}: got {value}"):
        config("llama", **{name: value})
    if name == "partial_rotary_factor":
        with pytest.raises(LoadError, match=f"{name}: got 0.5"):
            config("llama", rope_parameters={"rope_type": "default", "rope_theta": 1e4, name: 0.5})
    config("llama", partial_rotary_factor=1.0, rope_traditional=False)
