"""The fast kernels that cases.cpp needs, by the features that they are compiled for."""

from __future__ import annotations

# Values of the function constants, in the order of AttentionFeature.
PLAIN, CAUSAL, MASKED, PADDED = (0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0), (3, 1, 0, 0, 0, 0), (0, 0, 0, 0, 0, 1)


def of(elements: str, *steps: str) -> list[str]:
    """Names of kernels for head size 80."""
    return [f"attention_{step}_{element}_e80" for element in elements.split() for step in steps]


FAST_KERNELS = {
    PLAIN: [
        *of("f32 f16 bf16", "prefill", "decode", "decode_split"),
        *(f"attention_merge_{element}" for element in ("f32", "f16", "bf16")),
    ],
    CAUSAL: of("f32 f16 bf16", "prefill", "decode", "decode_split"),
    MASKED: of("f32", "prefill", "decode"),
    PADDED: of("f32", "prefill", "decode"),
}
