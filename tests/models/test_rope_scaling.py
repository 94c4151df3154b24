"""Models with scaled RoPE: all forms have the logits of the layers, and the context is longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.engine import EngineRequest
from tiny_llm.engine.batch import answer_all
from tiny_llm.generation.loaded import LoadedModel
from tiny_llm.generation.text import context_length
from tiny_llm.models import dispatch_model
from tiny_llm.ops.rope_scaling import ORIGINAL
from tiny_llm.sampling.params import Sampling

from ..loading.folders import small_tokenizer
from ..support.gpu import on_a_gpu
from ..support.models.checkpoints import checkpoint, each_family, tokens
from ..support.models.logits import assert_logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

LENGTH, CONTEXT = 40, 64
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 16}
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    ORIGINAL: 16,
}


def weights_of(family: str) -> SimpleNamespace:
    context = CONTEXT if family == "llama" else 24
    weights = checkpoint(family, layers=2, max_position_embeddings=context, scale_dtype=mx.float32)
    weights.args.rope_scaling = LLAMA_3 if family == "llama" else YARN
    return weights


def model_of(family: str, week: int, **options: Any) -> Any:
    return dispatch_model("a folder", weights_of(family), week, dtype=mx.float32, **options)


def by_steps(model: Any) -> mx.array:
    """The logits of a prompt, and of single tokens after it."""
    ids, cache = tokens(1, LENGTH), model.create_kv_cache()
    parts = [model(ids[:, :30], 0, cache)]
    parts += [model(ids[:, place : place + 1], place, cache) for place in range(30, LENGTH)]
    logits = mx.concatenate(parts, axis=1)
    mx.eval(logits)
    return logits


@each_family
def test_all_forms_have_the_logits_of_the_first_week(family: str) -> None:
    expected = model_of(family, 1)(tokens(1, LENGTH))
    plain = checkpoint(family, layers=2, scale_dtype=mx.float32)
    unscaled = dispatch_model("a folder", plain, 1, dtype=mx.float32)(tokens(1, LENGTH))
    assert not mx.allclose(unscaled, expected, atol=0.1)
    flash = model_of(family, 2, enable_flash_attn=True)
    for model in (flash, model_of(family, 2), model_of(family, 3)):
        assert_logits(by_steps(model), expected)
    assert all(block.fused is not None for block in flash.layers_inner)
    with on_a_gpu():
        model = model_of(family, 2, enable_flash_attn=True)
        assert all(block.gpu_weights is not None for block in model.layers_inner)
        assert_logits(by_steps(model), expected)


@each_family
def test_the_engine_has_the_tokens_of_the_first_week(family: str) -> None:
    model, readable = model_of(family, 2, enable_flash_attn=True), model_of(family, 1)
    llm = LoadedModel("yarn", model, small_tokenizer_of(), "cpu", CONTEXT)
    ids = tokens(1, 30).tolist()[0]
    request = EngineRequest(prompt_ids=ids, sampling=Sampling(max_tokens=12, ignore_eos=True))
    (result,) = answer_all(llm, [request], batch_size=1)
    for _ in range(12):
        ids.append(int(mx.argmax(readable(mx.array([ids]))[0, -1]).item()))
    assert list(result.token_ids) == ids[30:]


def small_tokenizer_of() -> Any:
    from tiny_llm.loading.tokenizer.tokenizer import Tokenizer

    return Tokenizer(small_tokenizer(), [95], None)


@each_family
def test_the_context_is_that_of_the_training_times_the_factor(family: str) -> None:
    model = model_of(family, 2)
    assert (model.max_seq_len, context_length(model)) == (CONTEXT, CONTEXT)
    model(tokens(1, CONTEXT), 0, model.create_kv_cache())
    with pytest.raises(ValueError, match=r"^RoPE: offset: .*expected .*0\.\.63"):
        model(tokens(1, CONTEXT + 1), 0, model.create_kv_cache())


def test_a_scaling_of_another_kind_is_refused() -> None:
    weights = weights_of("qwen2")
    weights.args.rope_scaling = {"type": "yarn", "factor": "4"}
    with pytest.raises(ValueError, match=r"rope_scaling: factor: got '4', expected a number from 1"):
        dispatch_model("a folder", weights, 2)
