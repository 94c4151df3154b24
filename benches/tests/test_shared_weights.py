"""The same weights for all backends: a GGUF file, read back by its specification, and logits."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from benches.contestants import shared_weights
from benches.contestants.models import tiny_llm
from benches.names import OPENVINO, TINY_LLM
from benches.peers import TOLERANCE
from tiny_llm.loading import Checkpoint, ModelConfig
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.layout import layout
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.tree import assemble, named_parts
from tiny_llm_tools.benchmark.backends import BenchBackend
from tiny_llm_tools.benchmark.requests import BenchRequest

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
    for _, part in named_parts(model):  # equal values could hide a wrong order
        if hasattr(part, "bias"):
            part.bias = mx.array(numbers.normal(size=part.bias.shape), mx.bfloat16)
        if not hasattr(part, "scales"):
            part.weight = mx.array(numbers.uniform(0.5, 1.5, part.weight.shape), mx.bfloat16)
    shared_weights.centre(model)
    return config, model


def read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + size].decode(), at + 8 + size


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, bytes]]]:
    """Metadata, and tensors as (sizes innermost first, type, bytes from their offset on)."""
    data = path.read_bytes()
    magic, version, tensors, count = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    at, metadata, found = 24, {}, {}
    for _ in range(count):
        name, at = read_text(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        if kind == 8:
            metadata[name], at = read_text(data, at + 4)
        else:
            (metadata[name],) = struct.unpack_from({4: "<I", 6: "<f"}[kind], data, at + 4)
            at += 8
    for _ in range(tensors):
        name, at = read_text(data, at)
        (axes,) = struct.unpack_from("<I", data, at)
        *sizes, kind, offset = struct.unpack_from(f"<{axes}QIQ", data, at + 4)
        at += 4 + 8 * axes + 12
        found[name] = (tuple(sizes), kind, offset)
    start = -(-at // 32) * 32
    assert all(offset % 32 == 0 for _, _, offset in found.values())
    return metadata, {
        name: (sizes, kind, data[start + offset :]) for name, (sizes, kind, offset) in found.items()
    }


def unpack_q4_0(data: bytes, rows: int, columns: int) -> np.ndarray:
    """Block by block, by the specification."""
    out = np.empty(rows * columns, np.float32)
    for block in range(rows * columns // 32):
        (scale,) = struct.unpack_from("<e", data, 18 * block)
        for place, octet in enumerate(data[18 * block + 2 : 18 * block + 18]):
            out[32 * block + place] = scale * ((octet & 15) - 8)
            out[32 * block + place + 16] = scale * ((octet >> 4) - 8)
    return out.reshape(rows, columns)


@pytest.mark.parametrize("shortcut", FAMILIES)
def test_a_file_holds_exactly_the_weights_of_the_model(shortcut: str, tmp_path: Path) -> None:
    config, model = small_model(shortcut)
    shared_weights.write_gguf(config, model, tmp_path / "model.gguf")
    metadata, tensors = read_gguf(tmp_path / "model.gguf")
    family = shortcut.partition("-")[0]
    assert metadata["general.architecture"] == family
    assert metadata[f"{family}.block_count"] == 2
    assert metadata[f"{family}.attention.head_count_kv"] == config.num_key_value_heads
    assert metadata[f"{family}.rope.freq_base"] == config.rope_theta
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


def test_the_mean_of_shared_weights_is_near_zero() -> None:
    _, model = small_model("qwen2-0.5b")
    part = model.model.layers[0].mlp.up_proj
    dense = np.array(mx.dequantize(part.weight, part.scales, part.biases, 64, 4).astype(mx.float32))
    assert abs(dense.mean()) < 0.02 * dense.std()


@pytest.mark.parametrize("shortcut", FAMILIES)
def test_every_part_has_a_name_of_its_own_in_the_file(shortcut: str) -> None:
    names = [shared_weights.gguf_name(name) for name in layout(small_config(shortcut))]
    assert len(set(names)) == len(names)
    assert shared_weights.gguf_name("model.layers.11.self_attn.o_proj") == "blk.11.attn_output"


def check_backend(peer: BenchBackend, config: ModelConfig, model: Any) -> None:
    """The logits of a peer are near those of tiny_llm, and it decodes the token of its largest logit."""
    own = tiny_llm(Checkpoint("random", None, config, model, None, 0), mx.float32, 512)[TINY_LLM]
    request = BenchRequest(tuple(range(300, 340)), 4)
    logits, expected = (np.array(each.logits(request)) for each in (peer, own))
    assert np.linalg.norm(logits - expected) / np.linalg.norm(expected) < TOLERANCE
    tokens = list(peer.generate(request))
    assert tokens[0] == logits.argmax()
    longer = BenchRequest((*request.prompt, *tokens[:-1]), 1)  # the cache agrees with a prefill
    assert next(peer.generate(longer)) == tokens[-1]


@pytest.mark.llama_cpp
@pytest.mark.parametrize("shortcut", FAMILIES)
def test_llama_cpp_computes_the_same_from_the_file(shortcut: str, tmp_path: Path) -> None:
    from benches.contestants.llama_cpp import llama_cpp

    config, model = small_model(shortcut)
    shared_weights.write_gguf(config, model, tmp_path / "model.gguf")
    for backend in llama_cpp(str(tmp_path / "model.gguf"), threads=1, context=512).values():
        check_backend(backend, config, model)


@pytest.mark.openvino
@pytest.mark.parametrize("shortcut", FAMILIES)
def test_openvino_computes_the_same_from_its_graph(shortcut: str) -> None:
    from benches.contestants.openvino import openvino

    config, model = small_model(shortcut)
    checkpoint = Checkpoint("random", None, config, model, None, 0)
    check_backend(openvino(checkpoint, threads=1)[OPENVINO], config, model)


@pytest.mark.openvino
@pytest.mark.parametrize("shortcut", FAMILIES)
def test_openvino_recognizes_the_patterns_of_its_graph(shortcut: str) -> None:
    """The same fused operations as in a model that optimum-intel exports: the comparison is fair."""
    import openvino

    from benches.contestants.openvino_model import openvino_model

    config, model = small_model(shortcut)
    compiled = openvino.Core().compile_model(openvino_model(config, model), "CPU")
    operations = compiled.get_runtime_model().get_ordered_ops()
    counts = Counter(operation.get_rt_info()["layerType"].astype(str) for operation in operations)
    layers = config.num_hidden_layers
    norms = 4 if "qwen3" in shortcut else 2
    assert counts["ScaledDotProductAttention"] == layers
    assert counts["RoPE"] == 2 * layers
    assert counts["RMS"] == norms * layers + 1
    assert counts["FullyConnected"] == 7 * layers + 1
    assert counts["Softmax"] == 0
