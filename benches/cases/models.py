"""The rows of `bench peers`, and how much each of them reads and computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benches.cases.attention import ITEM_BYTES, SHORT_NAMES, Dtype
from benches.contestants.names import LLAMA_CPP, MLX_LM, SEQUENCES
from benches.contestants.shared_weights import sizes
from tiny_llm.loading import ModelConfig

Kind = Literal["decode", "prefill", "batch", "memory", "start"]

GROUPS: dict[str, str] = {
    "decode": "one token after the other, 0.5B parameters in 4 bits, beside llama-cpp-python",
    "prefill": "from a prompt to the first token, 0.5B parameters in 4 bits, beside llama-cpp-python",
    "mlx-lm": "the same weights in mlx-lm, which is fastest in float32",
    "batch": f"{SEQUENCES} sequences that decode together, beside a single one",
    "shapes": "other models, beside llama-cpp-python",
    "memory": "the most that a process of ours has in memory, Python and MLX included (not a timing)",
    "start": "the embedded model: a step, a fresh process to its first printed token, and an import",
}
SMALL = "random:qwen2-0.5b"
EMBEDDED = "tiny"
CONTEXT = 4096  # room for a prompt and all samples of an answer


@dataclass(frozen=True, slots=True)
class Case:
    """One contest: reading a prompt, or adding tokens behind it."""

    group: str
    kind: Kind
    model: str
    dtype: Dtype
    prompt: int
    tokens: int = 1  # that a sample of decoding has
    rivals: tuple[str, ...] = ()
    what: str = ""  # of the group "start": what is started

    @property
    def name(self) -> str:
        if self.what:
            return self.what
        work = {
            "decode": f"decode behind {self.prompt} tokens",
            "prefill": f"prefill of {self.prompt} tokens",
            "batch": f"decode {SEQUENCES} x behind {self.prompt} tokens",
            "memory": f"peak memory, {self.prompt} tokens",
        }[self.kind]
        return f"{self.model.removeprefix('random:')} {SHORT_NAMES[self.dtype]} {work}"


def cases(group: str) -> Iterator[Case]:
    """The rows of one group, in the order they are measured."""
    llama = (LLAMA_CPP,)
    match group:
        case "decode":
            for context in (128, 2048):
                yield Case(group, "decode", SMALL, "bfloat16", context, 16, llama)
        case "prefill":
            for prompt in (128, 512, 2048):
                yield Case(group, "prefill", SMALL, "bfloat16", prompt, rivals=llama)
        case "mlx-lm":
            yield Case(group, "decode", SMALL, "bfloat16", 16, 4, (MLX_LM,))
            yield Case(group, "prefill", SMALL, "bfloat16", 16, rivals=(MLX_LM,))
        case "batch":
            for dtype in ("bfloat16", "float32"):
                yield Case(group, "batch", SMALL, dtype, 128, 8)
        case "shapes":
            for model in ("random:qwen2-1.5b", "random:qwen3-0.6b"):
                yield Case(group, "decode", model, "bfloat16", 128, 8, llama)
                yield Case(group, "prefill", model, "bfloat16", 512, rivals=llama)
        case "memory":
            yield Case(group, "memory", SMALL, "bfloat16", 2048)
        case "start":
            yield Case(group, "decode", EMBEDDED, "bfloat16", 32, 16)
            for what in ("first printed token", "import"):
                yield Case(group, "start", EMBEDDED, "bfloat16", 0, what=what)


def is_quick(case: Case) -> bool:
    """Whether a row belongs to the short run."""
    return case.prompt <= 512 and MLX_LM not in case.rivals and case.model in (SMALL, EMBEDDED)


def cache_bytes(config: ModelConfig, tokens: int, dtype: Dtype) -> int:
    """Keys and values of so many tokens."""
    heads = 2 * config.num_hidden_layers * config.num_key_value_heads
    return heads * config.head_dim * tokens * ITEM_BYTES[dtype]


def work(case: Case, weights: int) -> tuple[float, int]:
    """Operations of a sample of reading a prompt, and the bytes that must be read for each sample.

    A prompt: every matrix for every token, the scores of the vocabulary for the last. A token: all weights
    once, shared by the sequences of a batch, and its cache.
    """
    config = sizes(case.model)
    if case.kind == "prefill":
        return _prefill_flops(config, case.prompt), weights
    sequences = SEQUENCES if case.kind == "batch" else 1
    return 0.0, weights // sequences + cache_bytes(config, case.prompt, case.dtype)


def _prefill_flops(config: ModelConfig, tokens: int) -> float:
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner
    pairs = tokens * (tokens + 1) / 2  # of a query and a key that it sees
    layers = config.num_hidden_layers * (2.0 * layer * tokens + 4.0 * queries * pairs)
    return layers + 2.0 * hidden * config.vocab_size
