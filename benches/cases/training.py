"""The rows of `bench training`: attention forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

from benches.cases.attention import Case, Group
from benches.harness.types import Dtype

GROUPS: dict[Group, str] = {
    "f32": "forward and backward of 1024 to 4096 tokens in float32",
    "bf16": "forward and backward of 1024 to 4096 tokens in bfloat16",
}

SHAPES = ((8, 8, 1024, 128), (14, 2, 2048, 64), (8, 8, 4096, 128))

# The backward pass has five products, of which two are those of the forward pass. Kernels that compute scores
# twice do more; that is their cost, not work.
WORK = 3.5  # in forward passes


def cases(group: Group) -> Iterator[Case]:
    """The rows of one group in the order of measurement."""
    dtype: Dtype = "float32" if group == "f32" else "bfloat16"
    for heads, kv_heads, N, D in SHAPES:
        for causal in (True, False):
            yield Case(group, dtype, heads, kv_heads, N, N, D, causal)
