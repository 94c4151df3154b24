"""Which model a name means, and which of our classes runs it in a week of the course."""

from typing import Any

from .argument_types import check_text, check_whole, kind
from .errors import ArgumentError
from .qwen2_week1 import Qwen2ModelWeek1
from .qwen2_week2 import Qwen2ModelWeek2
from .qwen2_week3 import Qwen2ModelWeek3
from .qwen3 import Qwen3Model, Qwen3ModelWeek1, Qwen3ModelWeek3
from .transformer.model import Transformer

SHORTCUTS = {
    **{f"qwen2-{size}": f"Qwen/Qwen2-{size.upper()}-Instruct-MLX" for size in ("0.5b", "1.5b", "7b")},
    **{f"qwen3-{size}": f"mlx-community/Qwen3-{size.upper()}-4bit" for size in ("0.6b", "1.7b", "4b", "8b")},
}
PREFIXES = {"Qwen/Qwen2": "qwen2", "mlx-community/Qwen3": "qwen3"}
MODELS: dict[str, dict[int, type[Transformer]]] = {
    "qwen2": {1: Qwen2ModelWeek1, 2: Qwen2ModelWeek2, 3: Qwen2ModelWeek3},
    "qwen3": {1: Qwen3ModelWeek1, 2: Qwen3Model, 3: Qwen3ModelWeek3},
}


def shortcut_name_to_full_name(shortcut_name: str) -> str:
    """The hub's name of a shortcut such as "qwen2-0.5b", in any case; anything else unchanged."""
    check_text("shortcut_name_to_full_name", "shortcut_name", shortcut_name)
    return SHORTCUTS.get(shortcut_name.lower(), shortcut_name)


def dispatch_model(model_name: str, mlx_model: Any, week: int, **kwargs: Any) -> Any:
    """Build our model of that week from a loaded one; `kwargs` go to its class.

    The family is `mlx_model.args.model_type`, or else follows from a name of the hub.
    """
    check_text("dispatch_model", "model_name", model_name)
    if not hasattr(mlx_model, "args"):
        raise ArgumentError("dispatch_model", "mlx_model", kind(mlx_model), "the mlx_model of a checkpoint")
    check_whole("dispatch_model", "week", week)
    full_name = shortcut_name_to_full_name(model_name)
    named = (family for prefix, family in PREFIXES.items() if full_name.startswith(prefix))
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
