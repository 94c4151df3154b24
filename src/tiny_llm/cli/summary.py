"""What is told about an answer when it is there: a line or two for people, fields for JSON."""

from typing import Any

import mlx.core as mx

from ..generation.generation import Generation

ATTENTION = {True: "flash attention", False: "grouped attention"}


def fields(generation: Generation) -> dict[str, Any]:
    """The numbers of an answer, as JSON has them."""
    statistics = generation.statistics
    return {
        "finish_reason": generation.finish_reason,
        "prompt_tokens": statistics.prompt_tokens,
        "cached_tokens": statistics.cached_tokens,
        "generated_tokens": statistics.generated_tokens,
        "time_to_first_token": statistics.time_to_first_token,
        "prefill_tokens_per_second": statistics.prefill_tokens_per_second,
        "decode_tokens_per_second": statistics.decode_tokens_per_second,
        "peak_memory_bytes": mx.get_peak_memory(),
    }


def numbers(generation: Generation) -> str:
    """The same in a line."""
    found = fields(generation)
    kept = f" ({found['cached_tokens']} kept)" if found["cached_tokens"] else ""
    parts = [
        f"prompt {found['prompt_tokens']} tokens{kept}, {found['prefill_tokens_per_second']:.0f} tok/s",
        f"answer {found['generated_tokens']} tokens, {found['decode_tokens_per_second']:.1f} tok/s",
        f"first token after {found['time_to_first_token']:.2f} s",
        f"peak memory {found['peak_memory_bytes'] / 1e6:.0f} MB",
    ]
    if found["finish_reason"] == "length":
        parts.append("cut off at its longest length")
    return " | ".join(parts)


def setting(description: dict[str, Any]) -> str:
    """Who answered, in a line."""
    parts = [description["model"], description["solution"]]
    if description["loader"] is not None:
        parts.append(description["loader"])
    if description["flash_attention"] is not None:
        parts.append(ATTENTION[description["flash_attention"]])
    if description["draft_model"] is not None:
        parts.append(f"draft model {description['draft_model']}")
    where = "on the GPU" if description["device"] == "gpu" else "on the CPU"
    if not mx.is_available(mx.gpu):
        where += " (MLX finds no GPU)"
    return ", ".join([*parts, description["dtype"], where])
