"""The model class of each family and week."""

from typing import Any

from ..checks.types import check_int, check_text, kind
from ..errors import ArgumentError
from ..models.llama import LlamaModel
from ..models.model import Transformer
from ..models.names import FAMILIES, shortcut_name_to_full_name
from ..qwen2_week1 import Qwen2ModelWeek1
from ..qwen2_week2 import Qwen2ModelWeek2
from ..qwen2_week3 import Qwen2ModelWeek3
from ..qwen3 import Qwen3Model, Qwen3ModelWeek1, Qwen3ModelWeek3
from .stages import Week1Model, Week2Model, Week3Model


def _stages_of(family: type[Transformer]) -> dict[int, type[Transformer]]:
    """The models of a family that is no part of the course."""
    place = {"__module__": family.__module__}
    stages = enumerate((Week1Model, Week2Model, Week3Model), start=1)
    return {week: type(family.__name__, (stage, family), place) for week, stage in stages}


MODELS: dict[str, dict[int, type[Transformer]]] = {
    "qwen2": {1: Qwen2ModelWeek1, 2: Qwen2ModelWeek2, 3: Qwen2ModelWeek3},
    "qwen3": {1: Qwen3ModelWeek1, 2: Qwen3Model, 3: Qwen3ModelWeek3},
    "llama": _stages_of(LlamaModel),
    "mistral": _stages_of(LlamaModel),
}


def dispatch_model(model_name: str, mlx_model: Any, week: int, **kwargs: Any) -> Any:
    """Build the model of a week on the weights of `mlx_model`; `kwargs` are passed to its class.

    The family is `mlx_model.args.model_type`, or else that of a name on the hub.
    """
    check_text("dispatch_model", "model_name", model_name)
    if not hasattr(mlx_model, "args"):
        raise ArgumentError("dispatch_model", "mlx_model", kind(mlx_model), "the mlx_model of a checkpoint")
    check_int("dispatch_model", "week", week)
    full_name = shortcut_name_to_full_name(model_name)
    named = (name for name, family in FAMILIES.items() if full_name.startswith(family.hub_prefix))
    family = getattr(mlx_model.args, "model_type", None) or next(named, None)
    if family not in MODELS:
        raise ArgumentError(
            "dispatch_model",
            "model_name",
            f"{model_name!r} of type {family!r}",
            f"a model of type {' or '.join(MODELS)}",
        )
    if week not in MODELS[family]:
        raise ArgumentError("dispatch_model", "week", week, "1, 2 or 3")
    return MODELS[family][week](mlx_model, **kwargs)
