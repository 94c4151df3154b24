"""Write the trained weights as a 4-bit folder for mlx-lm and tiny-llm."""

import json
from pathlib import Path

import mlx.core as mx

from training.model.config import GENERATION, ModelConfig
from training.model.forward import Weights, quantized


def packed(weights: Weights) -> Weights:
    """Matrices as weight, scales and biases of 4 bits; vectors in bfloat16."""
    result: Weights = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            stem = name.removesuffix(".weight")
            for part, array in zip(("weight", "scales", "biases"), quantized(weight), strict=True):
                result[f"{stem}.{part}"] = array
        else:
            result[name] = weight.astype(mx.bfloat16)
    return result


def export_quantized(folder: Path, weights: Weights, config: ModelConfig) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), packed(weights), metadata={"format": "mlx"})
    content = {
        "config.json": config.to_json(dtype="bfloat16", quantized=True),
        "generation_config.json": GENERATION,
    }
    for name, values in content.items():
        (folder / name).write_text(json.dumps(values, indent=2) + "\n")
