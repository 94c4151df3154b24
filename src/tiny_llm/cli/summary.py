"""Statistics of an answer and its settings, as text and as JSON fields."""

from typing import Any

import mlx.core as mx

from .backends import Answer

ATTENTION = {True: "flash attention", "mlx": "attention of MLX", False: "grouped attention"}


def fields(generation: Answer) -> dict[str, Any]:
    """The statistics of an answer, for JSON."""
    result = generation.result
    statistics = result.statistics
    return {
        "finish_reason": result.finish_reason,
        "prompt_tokens": statistics.prompt_tokens,
        "cached_tokens": statistics.cached_tokens,
        "generated_tokens": statistics.generated_tokens,
        "time_to_first_token": statistics.time_to_first_token,
        "prefill_tokens_per_second": statistics.prefill_tokens_per_second,
        "decode_tokens_per_second": statistics.decode_tokens_per_second,
        "peak_memory_bytes": mx.get_peak_memory(),
    }


def statistics_line(generation: Answer) -> str:
    """The same as one line of text."""
    found = fields(generation)
    cached = f" ({found['cached_tokens']} cached)" if found["cached_tokens"] else ""
    parts = [
        f"prompt {found['prompt_tokens']} tokens{cached}, {found['prefill_tokens_per_second']:.0f} tok/s",
        f"answer {found['generated_tokens']} tokens, {found['decode_tokens_per_second']:.1f} tok/s",
        f"first token after {found['time_to_first_token']:.2f} s",
        f"peak memory {found['peak_memory_bytes'] / 1e6:.0f} MB",
    ]
    if found["finish_reason"] == "length":
        parts.append("stopped at the maximum length")
    return " | ".join(parts)


def settings_line(description: dict[str, Any]) -> str:
    """Model, loader, attention, type and device, as one line."""
    parts = [description["model"], description["solution"]]
    if description["loader"] is not None:
        parts.append(description["loader"])
    if description["flash_attention"] is not None:
        parts.append(ATTENTION[description["flash_attention"]])
    if description["draft_model"] is not None:
        parts.append(f"draft model {description['draft_model']}")
    where = "on the GPU" if description["device"] == "gpu" else "on the CPU"
    if not mx.is_available(mx.gpu):
        where += " (MLX found no GPU)"
    return ", ".join([*parts, description["dtype"], where])
