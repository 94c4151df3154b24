"""A model in memory with what an answer needs besides: tokenizer, device and context."""

from pathlib import Path
from typing import Any

import mlx.core as mx

from ..course.model import load_model
from ..distributed.leader import Leader
from ..loading.progress import Progress
from ..loading.weights.tree import named_arrays, named_parts
from ..runtime.device import activation_dtype, device_name, on_device
from ..runtime.gpu import default_attention
from ..runtime.ranks import Ranks
from .text import context_length


class LoadedModel:
    """A model and its tokenizer on a device, "cpu" or "gpu".

    context: maximum number of tokens of a prompt and its answer.
    draft: a small model with the same vocabulary, which drafts for this one.
    leader: tells the steps to the other processes with a share of the model; None if there are none.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        device: str,
        context: int,
        draft: "LoadedModel | None" = None,
        leader: Leader | None = None,
    ):
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.context = context
        self.draft = draft
        self.leader = leader

    @property
    def models(self) -> list[Any]:
        """The model, and the one that drafts."""
        return [self.model] if self.draft is None else [self.model, self.draft.model]

    @property
    def family(self) -> str:
        """Such as "qwen3"."""
        return str(self.model.mlx_model.args.model_type)

    @property
    def weight_bytes(self) -> int:
        """The memory of the weights."""
        parts = named_parts(self.model.mlx_model)
        return sum(array.nbytes for name, part in parts for array in named_arrays(part, name).values())

    @classmethod
    def load(cls, function: str, name: str) -> "LoadedModel":
        """The model of this name in the fastest form of the machine; `function` is for its errors."""
        device = device_name(function)
        dtype = activation_dtype(function, "auto", device)
        with on_device(device):
            model, tokenizer = load_for_answers(name, dtype)
        context = context_length(model)
        assert context is not None
        return LoadedModel(name, model, tokenizer, device, context)


def load_for_answers(
    name: str | Path,
    dtype: mx.Dtype,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    ranks: Ranks | None = None,
) -> tuple[Any, Any]:
    """The model of this name with the fastest attention of MLX's default device, and its tokenizer."""
    model, checkpoint = load_model(
        name,
        dtype,
        offline=offline or None,
        progress=progress,
        ranks=ranks,
        enable_flash_attn=default_attention(),
    )
    return model, checkpoint.tokenizer
