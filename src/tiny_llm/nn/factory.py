"""Layers by name."""

import inspect
import warnings
from typing import Any

from ..checks.types import check_text
from ..errors import ArgumentError, ArgumentTypeError
from .base import BaseAttention
from .flash_v1 import FlashAttentionV1
from .flash_v2 import FlashAttentionV2
from .fused import FusedFlashAttention
from .grouped_query import GroupedQueryAttention
from .masked import MaskedAttention
from .multi_query import MultiQueryAttention
from .naive import NaiveAttention
from .sliding_window import SlidingWindowAttention

LAYERS: dict[str, type[BaseAttention]] = {
    "naive": NaiveAttention,
    "flash_v1": FlashAttentionV1,
    "flash_v2": FlashAttentionV2,
    "sliding_window": SlidingWindowAttention,
    "gqa": GroupedQueryAttention,
    "grouped_query": GroupedQueryAttention,
    "mqa": MultiQueryAttention,
    "multi_query": MultiQueryAttention,
    "masked": MaskedAttention,
    "flash": FusedFlashAttention,
    "fused": FusedFlashAttention,
}
PORTED = ("triton", "triton_flash")  # names of FlashTile for a layer that needs Triton


def get_attention(type: str, embed_dim: int, num_heads: int, **options: Any) -> BaseAttention:
    """The layer called `type`; options are the other arguments of its constructor.

    Case does not matter, and "-" and " " are read as "_". The names of FlashTile "triton" and "triton_flash"
    give FusedFlashAttention, with a warning.
    """
    check_text("get_attention", "type", type)
    name = type.lower().replace("-", "_").replace(" ", "_")
    if name in PORTED:
        message = f"get_attention: {type!r} is FusedFlashAttention here, which does not use Triton"
        warnings.warn(message, stacklevel=2)
        name = "fused"
    if name not in LAYERS:
        raise ArgumentError("get_attention", "type", repr(type), f"one of {', '.join((*LAYERS, *PORTED))}")
    layer = LAYERS[name]
    known = inspect.signature(layer).parameters
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        allowed = ", ".join(list(known)[2:])
        raise ArgumentTypeError(layer.__name__, "", f"an unknown option {unknown[0]!r}", f"one of {allowed}")
    if "num_kv_heads" in known and "num_kv_heads" not in options:
        raise ArgumentError(layer.__name__, "num_kv_heads", "none", f"a divisor of the {num_heads} heads")
    return layer(embed_dim, num_heads, **options)
