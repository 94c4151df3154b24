"""What /api/tags, /api/show and /api/version say."""

from typing import Any

from ...models import Models, ServedModel
from ...settings import Settings
from .fields import ShowFields
from .form import timestamp

# Of Ollama's interface, as far as this server has it: some clients refuse older ones.
VERSION = "0.12.11"


def tags(models: Models) -> dict[str, Any]:
    return {"models": [_tag(model) for model in models]}


def show(fields: ShowFields, model: ServedModel, settings: Settings) -> dict[str, Any]:
    family = model.engine.llm.family
    capabilities = {"completion": True, "tools": model.takes_tools, "thinking": model.takes_thinking}
    return {
        "details": _details(model),
        "model_info": {
            "general.architecture": family,
            f"{family}.context_length": model.engine.context,
        },
        "capabilities": [name for name, has in capabilities.items() if has],
        "modified_at": timestamp(model.created),
    }


def _tag(model: ServedModel) -> dict[str, Any]:
    """`size` is the memory of the weights; the digest, which some clients insist on, is empty."""
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": timestamp(model.created),
        "size": model.engine.llm.weight_bytes,
        "digest": "",
        "details": _details(model),
    }


def _details(model: ServedModel) -> dict[str, Any]:
    """Clients insist on all of these; the empty ones are not known."""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": model.engine.llm.family,
        "families": [model.engine.llm.family],
        "parameter_size": "",
        "quantization_level": "",
    }
