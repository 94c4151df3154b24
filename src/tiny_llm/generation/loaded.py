"""A model in memory with what an answer needs besides: tokenizer, device and context."""

import sys
from typing import Any

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..course.model import load_model
from ..distributed.launch import Group, start_ranks
from ..distributed.leader import Leader
from ..errors import ArgumentError
from ..loading.progress import Progress
from ..loading.weights.tree import named_arrays, named_parts
from ..runtime.device import activation_dtype, device_name, on_device
from ..runtime.gpu import default_attention
from ..runtime.ranks import Ranks
from .text import check_vocabularies, check_vocabulary_sizes, context_length


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
            return load_llm(name, dtype, device, enable_flash_attn=default_attention())


def load_llm(
    name: str,
    dtype: mx.Dtype,
    device: str,
    *,
    draft: str | None = None,
    context: int | None = None,
    group: Group | None = None,
    threads: str | None = None,
    offline: bool | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> LoadedModel:
    """Load the model of this name, and the small one of the name `draft`, on MLX's default device, `device`.

    The other ranks of a `group` are started with `threads` each, and load their shares at the same time.
    None as `context` is the shortest one of the models. `options` are those of `load_model`.
    """

    def load(each: str, ranks: Ranks | None) -> LoadedModel:
        model, checkpoint = load_model(
            each, dtype, offline=offline, progress=progress, ranks=ranks, **options
        )
        longest = context_length(model) or sys.maxsize
        return LoadedModel(each, model, checkpoint.tokenizer, device, longest)

    ranks, leader = None, None
    if group is not None:
        ranks, leader = start_ranks(
            group, name, dtype_name(dtype), offline=bool(offline), threads=threads, progress=progress
        )
    try:
        llm = shortest = load(name, ranks)
        if leader is not None:
            leader.wait_until_ready()
        llm.leader = leader
        if draft is not None:
            llm.draft = load(draft, None)  # the small model is here whole
            check_vocabularies("", llm.draft.tokenizer, llm.tokenizer)
            check_vocabulary_sizes("", llm.draft.model, llm.model)
            shortest = min(llm, llm.draft, key=lambda each: each.context)
        if context is not None and context > shortest.context:
            expected = f"at most {shortest.context}, the context of {shortest.name}"
            raise ArgumentError("", "context", context, expected)
    except BaseException:
        if leader is not None:
            leader.close()
        raise
    llm.context = context or shortest.context
    if llm.draft is not None:
        llm.draft.context = llm.context
    return llm
