"""Write the trained weights: a 4-bit folder for mlx-lm and tiny-llm, or a dense folder for transformers.

python -m training.export EMBEDDED_FOLDER DENSE_FOLDER      dense float32 copy of an exported 4-bit folder
"""

import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx

from training.config import GENERATION, ModelConfig
from training.model import BITS, GROUP, Weights, quantized

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def write_folder(folder: Path, weights: Weights, config: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(
        str(folder / "model.safetensors"),
        weights,
        metadata={"format": "mlx" if "quantization" in config else "pt"},
    )
    for name, content in (("config.json", config), ("generation_config.json", GENERATION)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


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


def unpacked(weights: Weights, dtype: mx.Dtype) -> Weights:
    """The dense weights of a 4-bit checkpoint."""
    result: Weights = {}
    for name, weight in weights.items():
        stem = name.removesuffix(".weight")
        if f"{stem}.scales" in weights:
            if name.endswith(".weight"):
                scales, biases = weights[f"{stem}.scales"], weights[f"{stem}.biases"]
                result[name] = mx.dequantize(
                    weight, scales.astype(dtype), biases.astype(dtype), group_size=GROUP, bits=BITS
                )
        elif f"{name.removesuffix('.scales').removesuffix('.biases')}.scales" not in weights:
            result[name] = weight.astype(dtype)
    return result


def export_quantized(folder: Path, weights: Weights, config: ModelConfig) -> None:
    write_folder(folder, packed(weights), config.to_json(dtype="bfloat16", quantized=True))


def export_dense(source: Path, folder: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    dense = {key: value for key, value in config.items() if not key.startswith("quantization")}
    weights = unpacked(mx.load(str(source / "model.safetensors")), mx.float32)
    write_folder(folder, weights, dense | {"torch_dtype": "float32"})
    for name in TOKENIZER_FILES:
        shutil.copy(source / name, folder / name)


if __name__ == "__main__":
    export_dense(Path(sys.argv[1]), Path(sys.argv[2]))
