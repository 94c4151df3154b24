"""One model in two formats: what the file for llama.cpp holds, read back by the specification."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tiny_llm.loading.weights.tree import assemble

from benches.contestants import shared_weights as twin
from benches.contestants.models import forms_of_ours
from benches.contestants.names import OURS
from benches.harness.measure_models import TOLERANCE
from tiny_llm.benchmark.requests import Request
from tiny_llm.loading import Checkpoint, ModelConfig
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.layout import layout
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.tree import named_parts

FAMILIES = ("qwen2-0.5b", "qwen3-0.6b")


@pytest.fixture(autouse=True)
def on_the_cpu() -> None:
    mx.set_default_device(mx.cpu)


def small_config(shortcut: str) -> ModelConfig:
    return replace(random_config(shortcut), num_hidden_layers=2, vocab_size=600, intermediate_size=256)


def small_model(shortcut: str) -> tuple[ModelConfig, Any]:
    config = small_config(shortcut)
    model = assemble(config, random_weights(config, silent))
    numbers = np.random.default_rng(0)
    for _, part in named_parts(model):  # what is all 0 or 1 would hide in the wrong place
        if hasattr(part, "bias"):
            part.bias = mx.array(numbers.normal(size=part.bias.shape), mx.bfloat16)
        if not hasattr(part, "scales"):
            part.weight = mx.array(numbers.uniform(0.5, 1.5, part.weight.shape), mx.bfloat16)
    twin.centre(model)
    return config, model


def read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size].decode(), at + 8 + size


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, bytes]]]:
    """Facts, and tensors as (sizes innermost first, kind, bytes from their offset on)."""
    data = path.read_bytes()
    magic, version, tensors, count = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    at, facts, found = 24, {}, {}
    for _ in range(count):
        name, at = read_text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        if kind == 8:
            facts[name], at = read_text(data, at + 4)
        else:
            (facts[name],) = struct.unpack_from({4: "<I", 6: "<f"}[kind], data, at + 4)
            at += 8
    for _ in range(tensors):
        name, at = read_text(data, at)
        (axes,) = struct.unpack_from("<I", data, at)
        *sizes, kind, offset = struct.unpack_from(f"<{axes}QIQ", data, at + 4)
        at += 4 + 8 * axes + 12
        found[name] = (tuple(sizes), kind, offset)
    start = -(-at // 32) * 32
    assert all(offset % 32 == 0 for _, _, offset in found.values())
    return facts, {
        name: (sizes, kind, data[start + offset :]) for name, (sizes, kind, offset) in found.items()
    }


def unpack_q4_0(data: bytes, rows: int, columns: int) -> np.ndarray:
    """Block by block, as the format says it."""
    out = np.empty(rows * columns, np.float32)
    for block in range(rows * columns // 32):
        (scale,) = struct.unpack_from("<e", data, 18 * block)
        for place, octet in enumerate(data[18 * block + 2 : 18 * block + 18]):
            out[32 * block + place] = scale * ((octet & 15) - 8)
            out[32 * block + place + 16] = scale * ((octet >> 4) - 8)
    return out.reshape(rows, columns)


@pytest.mark.parametrize("shortcut", FAMILIES)
def test_a_file_holds_exactly_the_numbers_of_our_model(shortcut: str, tmp_path: Path) -> None:
    config, model = small_model(shortcut)
    twin.write_gguf(config, model, tmp_path / "model.gguf")
    facts, tensors = read_gguf(tmp_path / "model.gguf")
    family = shortcut.partition("-")[0]
    assert facts["general.architecture"] == family
    assert facts[f"{family}.block_count"] == 2
    assert facts[f"{family}.attention.head_count_kv"] == config.num_key_value_heads
    assert facts[f"{family}.rope.freq_base"] == config.rope_theta
    parts = dict(named_parts(model))
    assert len(tensors) == len(layout(config)) + (6 if family == "qwen2" else 0)  # biases of two layers
    part = parts["model.layers.1.mlp.down_proj"]
    sizes, kind, data = tensors["blk.1.ffn_down.weight"]
    assert (sizes, kind) == ((256, config.hidden_size), 2)
    scales, biases = part.scales.astype(mx.float32), part.biases.astype(mx.float32)
    ours = mx.dequantize(part.weight, scales, biases, 64, 4)
    np.testing.assert_array_equal(unpack_q4_0(data, config.hidden_size, 256), np.array(ours))
    sizes, kind, data = tensors["blk.0.ffn_norm.weight"]
    norm = parts["model.layers.0.post_attention_layernorm"].weight.astype(mx.float32)
    assert (sizes, kind) == ((config.hidden_size,), 0)
    np.testing.assert_array_equal(np.frombuffer(data, "<f4", config.hidden_size), np.array(norm))


def test_weights_of_a_twin_lie_around_zero() -> None:
    _, model = small_model("qwen2-0.5b")
    part = model.model.layers[0].mlp.up_proj
    dense = np.array(mx.dequantize(part.weight, part.scales, part.biases, 64, 4).astype(mx.float32))
    assert abs(dense.mean()) < 0.02 * dense.std()


@pytest.mark.parametrize("shortcut", FAMILIES)
def test_every_part_has_a_name_of_its_own_in_the_file(shortcut: str) -> None:
    names = [twin.peer_name(name) for name in layout(small_config(shortcut))]
    assert len(set(names)) == len(names)
    assert twin.peer_name("model.layers.11.self_attn.o_proj") == "blk.11.attn_output"


@pytest.mark.llama_cpp
@pytest.mark.parametrize("shortcut", FAMILIES)
def test_llama_cpp_computes_the_same_from_the_file(shortcut: str, tmp_path: Path) -> None:
    from benches.contestants.llama_cpp import llama_cpp

    config, model = small_model(shortcut)
    twin.write_gguf(config, model, tmp_path / "model.gguf")
    peer = llama_cpp(str(tmp_path / "model.gguf"), threads=1, context=512)
    checkpoint = Checkpoint("random", None, config, model, None, 0)
    ours = forms_of_ours(checkpoint, mx.float32, 512)[OURS]
    request = Request(tuple(range(300, 340)), 4)
    scores, expected = (np.array(each.scores(request)) for each in (peer, ours))
    assert np.linalg.norm(scores - expected) / np.linalg.norm(expected) < TOLERANCE
    assert scores.argmax() == expected.argmax()
    assert next(peer.start(request)) == scores.argmax()
