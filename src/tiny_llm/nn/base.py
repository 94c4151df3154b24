"""What all attention layers share: projections, checks of arguments, and the rule of dropout."""

from abc import ABC, abstractmethod
from inspect import isabstract
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module  # mlx.nn exports it by a star, which mypy does not follow

from ..checks.arrays import FLOAT_DTYPES, check_arrays, check_float_dtype, check_shape
from ..checks.types import check_number, check_size, check_type
from ..errors import ArgumentError, ArgumentTypeError, UnsupportedError
from .linear import Linear
from .masks import mask_of_scores, visible_keys


class BaseAttention(Module, ABC):
    """Self-attention of `num_heads` heads over x [B, N, embed_dim]; a base class.

    A layer returns (output [B, N, embed_dim], weights or None). Its parameters are `qkv_proj`, whose rows are
    those of the queries, then keys, then values, each head after head; and `out_proj`. dropout is a
    probability in [0, 1) for attention weights; causal hides later tokens.
    """

    takes_masks = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        causal: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if isabstract(type(self)):  # a dict, which Module is, ignores abstract methods
            missing = ", ".join(sorted(type(self).__abstractmethods__))
            expected = f"a subclass that defines {missing}"
            raise ArgumentTypeError(self.name, "", "an abstract class", expected)
        check_size(self.name, "embed_dim", embed_dim)
        check_size(self.name, "num_heads", num_heads)
        if embed_dim % num_heads != 0:
            raise ArgumentError(self.name, "embed_dim", embed_dim, f"a multiple of the {num_heads} heads")
        check_number(self.name, "dropout", dropout)
        if not 0 <= dropout < 1:
            raise ArgumentError(self.name, "dropout", dropout, "a number in [0, 1)")
        for flag, given in (("bias", bias), ("causal", causal)):
            check_type(self.name, flag, given, bool, "True or False")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.scale = self.head_dim**-0.5
        self.dropout = dropout
        self.causal = causal
        self.add_projections(bias)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)

    @abstractmethod
    def __call__(self, x: mx.array, attn_mask: mx.array | None = None) -> tuple[mx.array, mx.array | None]:
        """x [B, N, embed_dim] -> the same shape, and the attention weights or None."""

    @abstractmethod
    def get_memory_usage(self, batch_size: int, seq_len: int) -> dict[str, Any]:
        """What a forward pass keeps in memory, in MB of 10^6 bytes."""

    @property
    def name(self) -> str:
        """The class, as errors name it."""
        return type(self).__name__

    @property
    def dtype(self) -> mx.Dtype:
        """That of the parameters; float32 if these are quantized."""
        dtype: mx.Dtype = self.out_proj.weight.dtype
        return dtype if dtype in FLOAT_DTYPES else mx.float32

    @property
    def num_heads_of_keys(self) -> int:
        """How many heads keys and values have."""
        return self.num_heads

    def add_projections(self, bias: bool) -> None:
        """Create what `project` multiplies by."""
        self.qkv_proj = Linear(self.embed_dim, 3 * self.embed_dim, bias=bias)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys and values of x, each [B, heads, N, head_dim]; x is checked."""
        self.check_input(x)
        parts = mx.unflatten(self.qkv_proj(x), -1, (3, self.num_heads, self.head_dim))
        query, key, value = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        return query, key, value

    def merge_heads(self, out: mx.array) -> mx.array:
        """The layer's output from that of its heads, [B, heads, N, head_dim]."""
        result: mx.array = self.out_proj(mx.flatten(out.swapaxes(1, 2), -2, -1))
        return result

    def visible(self, seq_len: int) -> mx.array:
        """Which keys the layer shows to each query without an attn_mask: bool [N, N]."""
        return visible_keys(seq_len, right=0 if self.causal else seq_len)

    def mask_of_scores(self, attn_mask: mx.array | None, x: mx.array) -> mx.array | None:
        """The mask as one that broadcasts to the scores [B, heads, N, N]; it is checked."""
        if attn_mask is None:
            return None
        if not self.takes_masks:
            raise UnsupportedError(self.name, "attn_mask", "a mask", "None: MaskedAttention takes masks")
        batch, tokens, _ = x.shape
        return mask_of_scores(self.name, attn_mask, (batch, self.num_heads, tokens, tokens))

    def check_input(self, x: mx.array) -> None:
        check_arrays(self.name, x=x)
        check_float_dtype(self.name, "x", x.dtype)
        check_shape(self.name, "x", x.shape, ("B", "N", self.embed_dim))

    def _extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, causal={self.causal}"
