"""LoRA adapters in a model's folder: they are not applied, and `load` says so."""

import warnings
from pathlib import Path

from .config import NAME as CONFIG
from .errors import LoadError

# Of mlx-lm, and of PEFT.
NAMES = ("adapters.safetensors", "adapter_model.safetensors", "adapter_model.bin")
ADVICE = "merge it into the weights of its model, as `mlx_lm.fuse` does"


def check_adapters(folder: Path) -> None:
    """Warn of an adapter beside a model; LoadError for an adapter alone."""
    for name in NAMES:
        if not (folder / name).exists():
            continue
        if not (folder / CONFIG).exists():
            raise LoadError(f"{name}: is a LoRA adapter without a model; {ADVICE}, and give that folder")
        warnings.warn(f"{folder / name}: a LoRA adapter is not applied; {ADVICE}", stacklevel=3)
