"""Random weights in the shape of a real model, for benchmarks without files."""

import random
from typing import Any

import mlx.core as mx

from ...ops.rope_scaling import ORIGINAL
from ..config import ModelConfig, Quantization
from ..progress import Progress
from .layout import Matrix, layout
from .memory import check_memory
from .read import copy_to_weight_memory
from .share import WeightShare, whole_model

PACKING = Quantization(group_size=64, bits=4)
# hidden size, size of the feed-forward layer, layers, query heads, key and value heads, size of a head
SIZES = {
    "qwen2-0.5b": (896, 4864, 24, 14, 2, 64),
    "qwen2-1.5b": (1536, 8960, 28, 12, 2, 128),
    "qwen2-7b": (3584, 18944, 28, 28, 4, 128),
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128),
    "qwen3-1.7b": (2048, 6144, 28, 16, 8, 128),
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128),
    "qwen3-8b": (4096, 12288, 36, 32, 8, 128),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64),
    "llama-3.2-3b": (3072, 8192, 28, 24, 8, 128),
    "llama-3.1-8b": (4096, 14336, 32, 32, 8, 128),
    "mistral-7b": (4096, 14336, 32, 32, 8, 128),
}
# By family: size of the vocabulary, context.
TEXTS = {
    "qwen2": (151936, 32768),
    "qwen3": (151936, 40960),
    "llama": (128256, 131072),
    "mistral": (32768, 32768),
}
LLAMA_3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192}
UNTIED = ("qwen2-7b", "qwen3-8b", "llama-3.1-8b", "mistral-7b")
BLOCK = 1_000_003  # words; prime, so that repetitions do not line up with rows


def random_config(shortcut: str) -> ModelConfig:
    """The config of the real model, in 4 bits."""
    family = shortcut.partition("-")[0]
    hidden, inner, layers, heads, kv_heads, head_dim = SIZES[shortcut]
    vocabulary, context = TEXTS[family]
    return ModelConfig(
        model_type=family,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        vocab_size=152064 if shortcut == "qwen2-7b" else vocabulary,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-6,
        rope_theta=5e5 if family == "llama" else 1e6,
        rope_scaling=LLAMA_3 | {"factor": 8.0 if "3.1" in shortcut else 32.0} if family == "llama" else None,
        max_position_embeddings=context,
        tie_word_embeddings=shortcut not in UNTIED,
        quantization=PACKING,
    )


def random_weights(
    config: ModelConfig,
    progress: Progress,
    bytes_per_weight: float | None = None,
    share: WeightShare | None = None,
) -> dict[str, mx.array]:
    """All arrays of the model, equal in each call; scales, biases and norms are bfloat16."""
    share = share or whole_model(config)
    weights = share.weights(config)
    total = weights * PACKING.bits // 8
    check_memory(weights, total + weights // PACKING.group_size * 4, bytes_per_weight)
    numbers = RandomWords(seed=0)
    made: dict[str, mx.array] = {}
    for name, part in layout(config).items():
        if isinstance(part, Matrix):
            some = _matrix(part, numbers)
        else:
            some = {"weight": mx.ones(part.size, mx.bfloat16)}
        if name in share.parts:
            made |= {f"{name}.{which}": array for which, array in some.items()}
    for name, array in made.items():
        if (cut := share.slice_of(name, array.shape)) is not None:
            made[name] = mx.contiguous(mx.take(array, mx.arange(cut.start, cut.stop), cut.axis))
    arrays: dict[str, mx.array] = {}
    done = 0
    for name, array in copy_to_weight_memory(made):
        arrays[name] = array
        if array.dtype == mx.uint32:
            done += array.nbytes
            progress("making weights", done, total)
    return arrays


def _matrix(part: Matrix, numbers: "RandomWords") -> dict[str, mx.array]:
    """Weights around 0 that keep the size of a vector roughly the same."""
    groups = (part.outputs, part.inputs // PACKING.group_size)
    levels = 2**PACKING.bits
    # The variance of uniform integers below n is (n * n - 1) / 12.
    step = (part.inputs * (levels**2 - 1) / 12) ** -0.5
    arrays = {
        "weight": numbers.take(part.outputs, part.inputs * PACKING.bits // 32),
        "scales": mx.full(groups, step, mx.bfloat16),
        "biases": mx.full(groups, -step * (levels - 1) / 2, mx.bfloat16),
    }
    return arrays | {"bias": mx.zeros(part.outputs, mx.bfloat16)} if part.bias else arrays


class RandomWords:
    """One block of random words, repeated, each time multiplied by another odd number.

    This runs at memory speed; a generator alone would take more than ten seconds for a model of 7B.
    """

    def __init__(self, seed: int):
        words: Any = memoryview(random.Random(seed).randbytes(4 * BLOCK)).cast("I")
        self._block = mx.array(words)
        self._taken = 0

    def take(self, rows: int, columns: int) -> mx.array:
        """The next words, [rows, columns] uint32."""
        size = rows * columns
        repeats = -(-size // BLOCK)
        odd = 2 * mx.arange(self._taken, self._taken + repeats, dtype=mx.uint32) + 1
        self._taken += repeats
        blocks = self._block * (odd * 2654435769)[:, None]
        # Concatenation copies: a slice alone would keep the end of the last block in memory.
        return mx.concatenate([mx.flatten(blocks)[:size], self._block[:0]]).reshape(rows, columns)
