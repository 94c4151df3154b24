"""The tables of docs/gpu.md: counts, the shortest time of a step, and measurements."""

from __future__ import annotations

from benches.cases.models import cache_bytes, model_shape
from benches.cases.primitives import WORK
from benches.names import MLX_LM, TINY_LLM
from benches.report.gpu import measured_table
from benches.report.marked import with_tables
from benches.report.tables import Record, rate_text, seconds_text, table
from tiny_llm.loading.weights.layout import Matrix, layout
from tools.roofline.model import DEVICES

NAMES = (TINY_LLM, MLX_LM)
BYTES = {"4-bit": 0.5 + 4 / 64, "bf16": 2.0}  # of a weight; 64 share a scale and a bias of 16 bits each
TIMED = ("qwen2-0.5b", "qwen2-7b")


def gpu_page(text: str, record: Record, measured: Record) -> str:
    """docs/gpu.md with new tables, from the counts and from the record of `pdm bench gpu`."""
    tables = {
        "measured": measured_table(measured),
        "counts": counts_table(record),
        "steps": steps_table(record),
    }
    return with_tables("gpu_page", text, tables)


def counts_table(record: Record) -> str:
    """Primitives and kernels of each step, as layers × those of a layer + those outside of layers."""
    columns = [(unit, name) for unit in ("primitives", "kernels") for name in NAMES]
    header = ["step", *(f"{unit}, {name}" for unit, name in columns)]
    body = [
        [_step_text(row), *(_sum_text(row, name, unit) for unit, name in columns)] for row in record["rows"]
    ]
    return table(header, body)


def total(row: Record, name: str, unit: str) -> int:
    """The primitives or kernels of a step of the whole model."""
    return int(row["layers"] * row[name]["layer"][unit] + row[name]["outside"][unit])


def _sum_text(row: Record, name: str, unit: str) -> str:
    layer, outside = (row[name][part][unit] for part in ("layer", "outside"))
    return f"{row['layers']} × {layer} + {outside} = {total(row, name, unit)}"


def _step_text(row: Record) -> str:
    past, new = WORK[row["work"]]
    work = f"decode after {past} tokens" if past else f"prefill of {new} tokens"
    return f"{row['model']}, {row['weights']}, {work}"


def steps_table(record: Record) -> str:
    """Kernels of a decode step, and its time if it only read the weights and the cache from memory."""
    kernels_of = [f"kernels, {name}" for name in NAMES]
    header = ["decode", "bytes", *kernels_of, *(device.name for device in DEVICES)]
    body = []
    for row in record["rows"]:
        if row["model"] in TIMED and row["work"] == "decode":
            size = step_bytes(row["model"], row["weights"])
            seconds = [size / (device.bandwidth * 1e9) for device in DEVICES]
            kernels = [str(total(row, name, "kernels")) for name in NAMES]
            times = [f"{seconds_text(time)}, {rate_text(1 / time)}" for time in seconds]
            body.append([f"{row['model']}, {row['weights']}", f"{size / 1e9:.3g} GB", *kernels, *times])
    return table(header, body)


def step_bytes(model: str, weights: str) -> float:
    """What a decode step reads: each matrix once, and the cache. A row of the embedding is negligible."""
    config = model_shape(f"random:{model}")
    matrices = {name: part for name, part in layout(config).items() if isinstance(part, Matrix)}
    if not config.tie_word_embeddings:
        del matrices["model.embed_tokens"]  # otherwise the table is also the matrix of the logits
    numbers = sum(part.outputs * part.inputs for part in matrices.values())
    past, new = WORK["decode"]
    return numbers * BYTES[weights] + cache_bytes(config, past + new, "bfloat16")
