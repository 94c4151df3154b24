"""One rank of a measured model, as a program: ours and mlx-lm's in turn, and the sums of a step alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from statistics import median
from typing import Any

import mlx.core as mx

from benches.contestants.gpu_models import our_tokens, their_tokens
from benches.names import MLX_LM, TINY_LLM
from tiny_llm.loading.config import ModelConfig
from tiny_llm.loading.progress import silent
from tiny_llm.loading.weights.random_model import random_config, random_weights
from tiny_llm.loading.weights.share import share_of
from tiny_llm.loading.weights.tree import assemble, named_parts
from tiny_llm.models import dispatch_model
from tiny_llm.runtime.gpu import computes_on_gpu
from tiny_llm.runtime.ranks import Ranks, join_nccl, join_ring

SHAPE_32B = {
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def config_of(name: str) -> ModelConfig:
    """The sizes of a model; "32b" is that of Qwen2.5-32B."""
    return replace(random_config("qwen2-7b"), **SHAPE_32B) if name == "32b" else random_config(name)


def our_model(config: ModelConfig, bits: int | None, ranks: Ranks | None) -> Any:
    """Random weights, of which this rank has its share; dense ones in bfloat16."""
    share = share_of(config, ranks)
    tree = assemble(config, random_weights(config, silent, share=share))
    tree.args, tree.ranks = share.config, ranks
    if bits is None:
        for _, part in named_parts(tree):
            if hasattr(part, "scales"):
                part.weight = mx.dequantize(part.weight, part.scales, part.biases, part.group_size, part.bits)
                mx.eval(part.weight)
                del part.scales, part.biases, part.group_size, part.bits
    return dispatch_model("a random model", tree, 2, enable_flash_attn=True, dtype=mx.bfloat16)


def their_model(config: ModelConfig, bits: int | None, ranks: Ranks | None) -> Any:
    """mlx-lm's model of the same shape, sharded in its way."""
    from mlx.nn.layers.quantized import quantize

    module: Any = import_module(f"mlx_lm.models.{config.model_type}")
    model = module.Model(module.ModelArgs.from_dict(vars(config)))
    model.set_dtype(mx.bfloat16)
    if bits is not None:
        quantize(model, 64, bits)
    if ranks is not None:
        model.shard(ranks.group)
    mx.eval(model.parameters())
    return model


def timed(tokens: Iterator[int]) -> tuple[float, float]:
    """Seconds to the first token, and of each token after it."""
    begin = time.perf_counter()
    times = [time.perf_counter() for _ in tokens]
    return times[0] - begin, (times[-1] - times[0]) / (len(times) - 1)


def seconds_of_sums(config: ModelConfig, ranks: Ranks) -> float:
    """The collective operations of one decode step, one after the other, and nothing else."""

    def step() -> mx.array:
        x = mx.ones((1, 1, config.hidden_size), mx.bfloat16)
        for _ in range(2 * config.num_hidden_layers + 1):
            x = ranks.sum(x)
        return ranks.gather(mx.zeros((1, -(-config.vocab_size // ranks.size)), mx.bfloat16) + x[0, :, :1])

    mx.eval(step())
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        mx.eval(step())
        times.append(time.perf_counter() - begin)
    return median(times)


def main(
    rank: int, addresses: list[str], model: str, bits: int | None, prompt: int, answer: int, repeats: int
) -> None:
    """Print the figures of this rank as JSON."""
    ranks = None
    if len(addresses) > 1:
        ranks = (join_nccl if computes_on_gpu() else join_ring)("tensor", rank, addresses)
    config = config_of(model)
    found: dict[str, Any] = {"sums": None if ranks is None else seconds_of_sums(config, ranks)}
    ids = [(7 * i + 3) % 90000 for i in range(prompt)]
    contestants = [(TINY_LLM, our_model, our_tokens), (MLX_LM, their_model, their_tokens)]
    for name, make, tokens in contestants if computes_on_gpu() else contestants[:1]:
        made = make(config, bits, ranks)
        runs = [timed(tokens(made, ids, answer)) for _ in range(repeats + 1)][1:]
        found[name] = [median(values) for values in zip(*runs, strict=True)]
        del made
        mx.clear_cache()
    print(json.dumps(found))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
