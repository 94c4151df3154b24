"""A loaded model as files that servers take: a folder for tiny_llm and mlx-lm, a GGUF file for llama.cpp.

A random model has no files. Its tokenizer is that of the embedded model, so prompts of text give all servers
the same tokens.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from benches.contestants import gguf
from benches.contestants.shared_weights import metadata, tensors
from tiny_llm.loading import Checkpoint
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.loading.weights.tree import named_arrays, named_parts

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
NORMAL, CONTROL, UNUSED = 1, 3, 5  # types of tokens in GGUF


def write_folder(checkpoint: Checkpoint, folder: Path, dtype: mx.Dtype | None = None) -> None:
    """The model in the layout of Hugging Face, with MLX's packed weights; `dtype` is that of all others."""
    found = asdict(checkpoint.config)
    config = json.loads((EMBEDDED / "config.json").read_text())
    config |= {name: found[name] for name in (*(config.keys() & found.keys()), "head_dim")}
    config["quantization_config"] = config["quantization"]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in TOKENIZER_FILES:
        shutil.copy(EMBEDDED / name, folder / name)
    arrays = {
        name: array if dtype is None or array.dtype == mx.uint32 else array.astype(dtype)
        for part_name, part in named_parts(checkpoint.mlx_model)
        for name, array in named_arrays(part, part_name).items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "mlx"})


def write_gguf_with_tokenizer(checkpoint: Checkpoint, path: Path) -> None:
    """The file of `shared_weights.write_gguf`, but with a tokenizer: a server gets texts."""
    config = checkpoint.config
    values = metadata(config) | tokenizer_metadata(checkpoint.tokenizer, config.vocab_size)
    gguf.write(path, values, tensors(checkpoint.mlx_model))


def tokenizer_metadata(tokenizer: Any, vocabulary: int) -> dict[str, gguf.Value]:
    """Tokens, their types and merges; ids beyond the tokenizer get names that no text has."""
    definition = json.loads(tokenizer.definition)
    ids = {token["id"]: token["content"] for token in definition["added_tokens"]}
    names = {number: name for name, number in definition["model"]["vocab"].items()} | ids
    merges = definition["model"]["merges"]
    types = [CONTROL if i in ids else NORMAL if i in names else UNUSED for i in range(vocabulary)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [names.get(number, f"[UNUSED{number}]") for number in range(vocabulary)],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [each if isinstance(each, str) else " ".join(each) for each in merges],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
    }
