"""Folders in the layout of Hugging Face, written from the small checkpoints of the other tests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import tokenizers

from tiny_llm.loading.weights.tree import named_arrays, named_parts

from ..support.models.checkpoints import VOCABULARY, checkpoint

END = "<|end|>"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}[assistant]"


def write_folder(folder: Path, weights: SimpleNamespace | None = None, *, shards: int = 1) -> Path:
    """Write a checkpoint with all files that a published model has."""
    weights = weights or checkpoint(layers=1)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder, "config.json", config_of(weights))
    write_json(folder, "generation_config.json", {"eos_token_id": [VOCABULARY - 1, 7]})
    write_json(folder, "tokenizer_config.json", {"eos_token": END, "chat_template": TEMPLATE})
    small_tokenizer().save(str(folder / "tokenizer.json"))
    write_shards(folder, arrays_of(weights), shards)
    return folder


def config_of(weights: SimpleNamespace) -> dict[str, Any]:
    config = vars(weights.args) | {"architectures": ["Some"], "hidden_act": "silu", "rope_scaling": None}
    embedding = weights.model.embed_tokens
    if hasattr(embedding, "scales"):
        config["quantization"] = {"group_size": embedding.group_size, "bits": embedding.bits}
    return config


def arrays_of(weights: SimpleNamespace) -> dict[str, mx.array]:
    return {
        key: array for name, part in named_parts(weights) for key, array in named_arrays(part, name).items()
    }


def write_shards(folder: Path, arrays: dict[str, mx.array], shards: int) -> None:
    """One file of weights, or several and their index, each with every n-th tensor."""
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "mlx"})
        return
    index = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        chosen = dict(list(arrays.items())[i::shards])
        mx.save_safetensors(str(folder / name), chosen)
        index |= dict.fromkeys(chosen, name)
    write_json(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": index})


def small_tokenizer(size: int = VOCABULARY) -> tokenizers.Tokenizer:
    """A token for each printable character of ASCII and for the space, and END: `size` of them in all."""
    characters = [*map(chr, range(33, 127)), "Ġ"]
    assert len(characters) + 1 == VOCABULARY
    vocabulary = {character: i for i, character in enumerate(characters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.add_tokens([f"<|more {i}|>" for i in range(size - VOCABULARY)])
    return tokenizer


def write_json(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value))


def change_json(folder: Path, name: str, **changes: Any) -> None:
    """Give some fields of a JSON file other values; None removes one."""
    value = json.loads((folder / name).read_text()) | changes
    write_json(folder, name, {key: entry for key, entry in value.items() if entry is not None})


def read_parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes after it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_parts(path: Path, header: dict[str, Any] | bytes, data: bytes, length: int | None = None) -> None:
    """Write a safetensors file with this header, and perhaps with a wrong length of it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def write_llama(folder: Path) -> Path:
    """As write_folder; END comes before each text, and the chat template writes it, as in a Llama 3."""
    write_folder(folder, checkpoint("llama", layers=1))
    tokenizer = small_tokenizer()
    frame = {"single": f"{END} $A", "special_tokens": [(END, VOCABULARY - 1)]}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(**frame)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    change_json(folder, "tokenizer_config.json", bos_token=END, chat_template=template)
    return folder
