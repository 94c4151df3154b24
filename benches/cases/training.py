"""The rows of `bench training`: attention forward and backward, and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from benches.cases.attention import Case
from benches.harness.types import DTYPES, SHORT_NAMES, Dtype

Group = Literal["f32", "bf16", "window", "memory", "layers"]
GROUPS: dict[Group, str] = {
    "f32": "forward and backward of 1024 to 4096 tokens in float32",
    "bf16": "forward and backward of 1024 to 4096 tokens in bfloat16",
    "window": "a sliding window of 512 keys over 8192 tokens, beside attention without one",
    "memory": "peak memory of forward and backward for 16384 tokens (not a timing)",
    "layers": "growth of this peak for each layer with linear memory, 8192 tokens (not a timing)",
}

SHAPES = ((8, 8, 1024, 128), (14, 2, 2048, 64), (8, 8, 4096, 128))
MEMORY_TOKENS, LAYER_TOKENS = 16384, 8192

# The backward pass has five products, of which two are those of the forward pass. Kernels that compute scores
# twice do more; that is their cost, not work.
WORK = 3.5  # in forward passes

LAYERS: dict[str, dict[str, Any]] = {  # names and arguments of `get_attention`
    "flash_v1": {},
    "flash_v2": {},
    "sliding_window": {"window_size": 512},
    "gqa": {"num_kv_heads": 2},
    "mqa": {},
    "masked": {},
    "fused": {},
}


@dataclass(frozen=True, slots=True)
class LayerCase:
    """A causal layer on x [1, length, embed_dim]."""

    layer: str
    dtype: Dtype = "float32"
    length: int = LAYER_TOKENS
    embed_dim: int = 64
    heads: int = 4
    group: Literal["layers"] = "layers"

    @property
    def name(self) -> str:
        sizes = f"{self.heads} heads D={self.embed_dim // self.heads}"
        return f"{SHORT_NAMES[self.dtype]} layer {self.layer}, N={self.length} {sizes} causal"

    def half(self) -> LayerCase:
        """The same layer on half the tokens."""
        return replace(self, length=self.length // 2)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def cases(group: Group) -> Iterator[Case | LayerCase]:
    """The rows of one group in the order of measurement."""
    match group:
        case "f32" | "bf16":
            dtype: Dtype = "float32" if group == "f32" else "bfloat16"
            for heads, kv_heads, N, D in SHAPES:
                for causal in (True, False):
                    yield Case(group, dtype, heads, kv_heads, N, N, D, causal)
        case "window":
            for each in DTYPES:
                yield Case(group, each, 8, 8, 8192, 8192, 128, causal=True, window=512)
        case "memory":
            for each in DTYPES:
                yield Case(group, each, 14, 2, MEMORY_TOKENS, MEMORY_TOKENS, 64, causal=True)
        case "layers":
            yield from map(LayerCase, LAYERS)


def is_quick(case: Case | LayerCase) -> bool:
    """Whether a row is part of `--quick`: no contestant takes more than some seconds for it."""
    return isinstance(case, Case) and case.L <= 1024
