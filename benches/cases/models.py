"""The rows of `bench peers`, and how much each reads and computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benches.harness.types import ITEM_BYTES, SHORT_NAMES, Dtype
from benches.names import LLAMA_CPP, MLX_LM, OPENVINO, SEQUENCES
from tiny_llm.loading import ModelConfig, find_folder
from tiny_llm.loading.config import read_config
from tiny_llm.loading.find import random_shortcut
from tiny_llm.loading.weights.random_model import random_config

Kind = Literal["decode", "prefill", "batch", "memory", "start"]

GROUPS: dict[str, str] = {
    "decode": "one token after the other, 0.5B parameters in 4 bits, beside llama.cpp and OpenVINO",
    "prefill": "from a prompt to the first token, 0.5B parameters in 4 bits, beside llama.cpp and OpenVINO",
    "mlx-lm": "the same weights in mlx-lm, in float32, its fastest type",
    "batch": f"{SEQUENCES} sequences that decode together, beside a single one",
    "shapes": "other models, beside llama.cpp and OpenVINO",
    "memory": "peak memory of a tiny_llm process, Python and MLX included (not a timing)",
    "start": "the embedded model: a step, a fresh process to its first printed token, and an import",
}
SMALL = "random:qwen2-0.5b"
EMBEDDED = "tiny"
CONTEXT = 4096  # maximum length of a prompt and all samples of its output


@dataclass(frozen=True, slots=True)
class Case:
    """A prefill or decode steps of one model, or what a process of tiny_llm takes."""

    group: str
    kind: Kind
    model: str
    dtype: Dtype
    prompt: int
    tokens: int = 1  # decode steps of a sample
    peers: tuple[str, ...] = ()
    what: str = ""  # of the group "start": what is measured

    @property
    def name(self) -> str:
        if self.what:
            return self.what
        work = {
            "decode": f"decode after {self.prompt} tokens",
            "prefill": f"prefill of {self.prompt} tokens",
            "batch": f"decode {SEQUENCES} x after {self.prompt} tokens",
            "memory": f"peak memory, {self.prompt} tokens",
        }[self.kind]
        return f"{self.model.removeprefix('random:')} {SHORT_NAMES[self.dtype]} {work}"


def cases(group: str) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    others = (LLAMA_CPP, OPENVINO)
    match group:
        case "decode":
            for context in (128, 2048):
                yield Case(group, "decode", SMALL, "bfloat16", context, 16, others)
        case "prefill":
            for prompt in (128, 512, 2048):
                yield Case(group, "prefill", SMALL, "bfloat16", prompt, peers=others)
        case "mlx-lm":
            yield Case(group, "decode", SMALL, "bfloat16", 16, 4, (MLX_LM,))
            yield Case(group, "prefill", SMALL, "bfloat16", 16, peers=(MLX_LM,))
        case "batch":
            for dtype in ("bfloat16", "float32"):
                yield Case(group, "batch", SMALL, dtype, 128, 8)
        case "shapes":
            for model in ("random:qwen2-1.5b", "random:qwen3-0.6b"):
                yield Case(group, "decode", model, "bfloat16", 128, 8, others)
                yield Case(group, "prefill", model, "bfloat16", 512, peers=others)
        case "memory":
            yield Case(group, "memory", SMALL, "bfloat16", 2048)
        case "start":
            yield Case(group, "decode", EMBEDDED, "bfloat16", 32, 16)
            for what in ("first printed token", "import"):
                yield Case(group, "start", EMBEDDED, "bfloat16", 0, what=what)


def is_quick(case: Case) -> bool:
    """Whether a row is part of `--quick`."""
    return case.prompt <= 512 and MLX_LM not in case.peers and case.model in (SMALL, EMBEDDED)


def cache_bytes(config: ModelConfig, tokens: int, dtype: Dtype) -> int:
    """Bytes of the keys and values of that many tokens."""
    heads = 2 * config.num_hidden_layers * config.num_key_value_heads
    return heads * config.head_dim * tokens * ITEM_BYTES[dtype]


def model_shape(name: str) -> ModelConfig:
    """The shape of a model such as "random:qwen2-0.5b", or of the embedded one, without its weights."""
    shortcut = random_shortcut(name)
    return random_config(shortcut) if shortcut else read_config(find_folder(name))


def work(case: Case, weights: int) -> tuple[float, int]:
    """Operations of a prefill, and the bytes that each sample must read.

    A prefill multiplies every matrix by every token, and computes logits for the last token. A decode step
    reads all weights once, for all sequences of a batch, and the cache of each.
    """
    config = model_shape(case.model)
    if case.kind == "prefill":
        return _prefill_flops(config, case.prompt), weights
    sequences = SEQUENCES if case.kind == "batch" else 1
    return 0.0, weights // sequences + cache_bytes(config, case.prompt, case.dtype)


def _prefill_flops(config: ModelConfig, tokens: int) -> float:
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
    pairs = tokens * (tokens + 1) / 2  # of a query and a visible key
    layers = config.num_hidden_layers * (2.0 * layer * tokens + 4.0 * queries * pairs)
    return layers + 2.0 * hidden * config.vocab_size
