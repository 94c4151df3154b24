"""How much memory an attention layer needs: formulas, in bytes, and the measured peak."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from ..checks.arrays import check_float_dtype
from ..checks.types import check_size
from ..errors import ArgumentError
from .base import BaseAttention

MB = 1e6  # bytes
FLOAT32 = 4  # bytes of a score, a maximum, a sum
SORTED_FIRST = 1 << 20  # numbers: some tens of milliseconds on a CPU


@dataclass(frozen=True)
class Sizes:
    """The arrays of one forward pass in bytes."""

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: mx.Dtype

    @staticmethod
    def of_layer(layer: BaseAttention, batch: int, tokens: int, dtype: mx.Dtype | None) -> "Sizes":
        check_size(layer.name, "batch_size", batch, minimum=0)
        check_size(layer.name, "seq_len", tokens, minimum=0)
        if dtype is not None:
            check_float_dtype(layer.name, "dtype", dtype)
        heads = layer.num_heads, layer.num_heads_of_keys
        return Sizes(batch, tokens, *heads, layer.head_dim, layer.dtype if dtype is None else dtype)

    @property
    def rows(self) -> int:
        return self.batch * self.heads * self.tokens

    @property
    def query(self) -> int:
        return self.dtype.size * self.rows * self.head_dim

    @property
    def output(self) -> int:
        return self.query

    @property
    def key_and_value(self) -> int:
        return 2 * self.query * self.kv_heads // self.heads

    @property
    def qkv(self) -> int:
        return self.query + self.key_and_value

    @property
    def scores(self) -> int:
        return FLOAT32 * self.rows * self.tokens

    @property
    def log_sum_exp(self) -> int:
        return FLOAT32 * self.rows

    @property
    def statistics(self) -> int:
        """The running maximum m and sum l of each row."""
        return 2 * FLOAT32 * self.rows

    @property
    def saved_for_backward(self) -> int:
        """Query, key, value, output and one log-sum-exp: linear in the number of tokens."""
        return self.qkv + self.output + self.log_sum_exp

    @property
    def naive(self) -> int:
        """NaiveAttention with as many heads of keys."""
        return self.qkv + self.output + self.scores

    def block(self, block_size: int) -> int:
        """One tile of scores in each head."""
        return FLOAT32 * self.batch * self.heads * block_size**2

    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        """Unevaluated query, key and value, for `explain`."""
        query = mx.zeros((self.batch, self.heads, self.tokens, self.head_dim), self.dtype)
        key = mx.zeros((self.batch, self.kv_heads, self.tokens, self.head_dim), self.dtype)
        return query, key, key


def common_usage(sizes: Sizes, total: int, *, complexity: str, saved: int) -> dict[str, Any]:
    """The keys that every layer reports."""
    return {
        "qkv_mb": sizes.qkv / MB,
        "output_mb": sizes.output / MB,
        "total_mb": total / MB,
        "total_gb": total / 1e9,
        "complexity": complexity,
        "saved_for_backward_mb": saved / MB,
    }


def comparison(naive: int, total: int, name: str) -> dict[str, float]:
    """Of a layer, called `name`, with NaiveAttention."""
    return {"naive_mb": naive / MB, name: total / MB, "reduction_ratio": naive / total if total else 1.0}


def measured_peak(layer: BaseAttention, sizes: Sizes) -> dict[str, float]:
    """measured_peak_mb: the peak of one forward pass, above what was there before it."""
    if sizes.dtype != layer.dtype:
        raise ArgumentError(layer.name, "dtype", sizes.dtype, "the layer's own dtype, to measure")
    x = mx.random.normal((sizes.batch, sizes.tokens, layer.embed_dim)).astype(sizes.dtype)
    mx.eval(x, layer.parameters())  # type: ignore[no-untyped-call]
    return {"measured_peak_mb": peak_of(lambda: layer(x)) / MB}


def peak_of(call: Callable[[], Any]) -> int:
    """MLX's peak in bytes while the arrays of `call` are evaluated, above what was there before.

    MLX's worker frees arrays while the graph is still being encoded, so the peak would depend on which is
    faster. So the worker has to sort numbers first. The threads allocate the memory that they keep before.
    """
    numbers = mx.random.uniform(shape=(SORTED_FIRST,))
    mx.eval(numbers, call())
    gc.collect()
    mx.synchronize()
    ordered = mx.sort(numbers)
    mx.async_eval(ordered)  # type: ignore[no-untyped-call]
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(call())
    mx.synchronize()
    return mx.get_peak_memory() - before
