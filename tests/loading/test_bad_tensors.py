"""Tensors that are not those of the config, and an index that does not fit the shards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..support.models.checkpoints import checkpoint
from .damage import WEIGHTS, Case, Damage, assert_refused, content, each, field
from .folders import arrays_of, write_json, write_shards

INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"


def tensors(change: Callable[[dict[str, mx.array]], object]) -> Damage:
    """Other tensors in the file, which itself is in order."""

    def damage(folder: Path) -> None:
        arrays = arrays_of(checkpoint(layers=1))
        change(arrays)
        write_shards(folder, arrays, 1)

    return damage


TENSORS: list[Case] = [
    (
        "a part missing",
        tensors(lambda x: x.pop(NORM)),
        r"'model.norm.weight': is missing, expected \[128\] \(from",
    ),
    (
        "a bias missing",
        tensors(lambda x: x.pop("model.layers.0.self_attn.q_proj.bias")),
        "q_proj.bias': is missing",
    ),
    (
        "scales missing",
        tensors(lambda x: x.pop("model.embed_tokens.scales")),
        "embed_tokens.weight': got shape",
    ),
    (
        "biases missing",
        tensors(lambda x: x.pop("model.embed_tokens.biases")),
        "embed_tokens.biases': is missing",
    ),
    (
        "one more",
        tensors(lambda x: x.update(extra=mx.ones(3))),
        "'extra': is not part of a qwen2 model .from config",
    ),
    (
        "a Qwen3 norm",
        tensors(lambda x: x.update({"model.layers.0.self_attn.q_norm.weight": mx.ones(32)})),
        "q_norm",
    ),
    (
        "another shape",
        tensors(lambda x: x.update({NORM: mx.ones(64)})),
        r"got shape \[64\], expected \[128\] \(from conf",
    ),
    (
        "another type",
        tensors(lambda x: x.update({NORM: mx.ones(128, mx.int32)})),
        "got I32, expected BF16 or F16",
    ),
    (
        "more layers",
        field("config.json", num_hidden_layers=2),
        "'model.layers.1.* is missing.* .from config.json.$",
    ),
    ("untied", field("config.json", tie_word_embeddings=False), "'lm_head.weight': is missing"),
    (
        "another width",
        field("config.json", hidden_size=256, head_dim=64),
        r"expected \[96, 32\] \(from config.json\)",
    ),
    (
        "other bits",
        field("config.json", quantization={"group_size": 64, "bits": 8}),
        r"expected \[96, 32\] \(from config",
    ),
    (
        "other groups",
        field("config.json", quantization={"group_size": 32, "bits": 4}),
        r"expected \[96, 4\] \(from config",
    ),
    (
        "no quantization",
        field("config.json", quantization=None),
        "scales': unexpected tensor: config.json declares this matrix as dense",
    ),
    (
        "groups beyond a row",
        field("config.json", quantization={"group_size": 128, "bits": 4}),
        "down_proj.scales': got rows of 192, expected a multiple of 128",
    ),
    (
        "a dense exception",
        field("config.json", quantization={"group_size": 64, "bits": 4, "model.embed_tokens": False}),
        "'model.embed_tokens.scales': unexpected tensor: config.json declares this matrix as dense",
    ),
]


@each(TENSORS)
def test_tensors_that_are_not_those_of_the_config(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, sentence)


def index(change: Callable[[Path, dict[str, Any]], object]) -> Damage:
    """Two shards, and a change of where the index has each tensor."""

    def damage(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        arrays = arrays_of(checkpoint(layers=1))
        write_shards(folder, arrays, 2)
        places = {name: shard(i % 2 + 1) for i, name in enumerate(arrays)}
        change(folder, places)
        write_json(folder, INDEX, {"weight_map": places})

    return damage


def shard(number: int) -> str:
    return f"model-{number:05}-of-00002.safetensors"


def twice(folder: Path, _: dict[str, Any]) -> None:
    shutil.copy(folder / shard(1), folder / shard(2))


INDICES: list[Case] = [
    ("no JSON", content(INDEX, b"{"), "index.json: is not valid JSON"),
    ("no map", content(INDEX, b"{}"), "index.json: weight_map: got None, expected the file of each tensor"),
    (
        "a number for a file",
        index(lambda _, x: x.update({NORM: 3})),
        "weight_map: got 3, expected the name of a",
    ),
    (
        "a way out",
        index(lambda _, x: x.update({NORM: "../model.safetensors"})),
        r"weight_map: got '\.\./model",
    ),
    ("the root", index(lambda _, x: x.update({NORM: "/etc/passwd"})), "weight_map: got '/etc/passwd'"),
    (
        "a pickle",
        index(lambda _, x: x.update({NORM: "model.bin"})),
        "got 'model.bin', expected the name of a safete",
    ),
    (
        "a shard missing",
        index(lambda folder, _: (folder / shard(2)).unlink()),
        "00002-of-00002.safetensors: is not in",
    ),
    (
        "a tensor twice",
        index(twice),
        "model-00002-of-00002.safetensors: .* is in model-00001-of-00002.safetensors, too",
    ),
    (
        "a wrong shard",
        index(lambda _, x: x.update({NORM: shard(1), "lm_head.weight": shard(2)})),
        "index.json: '",
    ),
    (
        "a tensor unlisted",
        index(lambda _, x: x.pop(NORM)),
        "'model.norm.weight': got no file, but model-0000",
    ),
]


@each(INDICES)
def test_an_index_that_does_not_fit(folder, damage, sentence):
    damage(folder)
    assert_refused(folder, sentence)
