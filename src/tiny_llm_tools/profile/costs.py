"""What attention costs: visible pairs, floating point operations and bytes, exactly."""

from __future__ import annotations

from tiny_llm.checks.types import check_size, check_type
from tiny_llm.errors import ArgumentError
from tiny_llm.ops.arguments import Window

UNBOUNDED = -1
PER_PAIR = 5  # scale, subtract the maximum, exp, add to the sum, compare with the maximum


def window_limits(function: str, causal: bool, window: Window) -> tuple[int, int]:
    """The keys that a query sees to its left and to its right, -1 for no limit.

    A number W means exactly W keys: up to the query's own if causal, else around it.
    """
    if window is None:
        left, right = UNBOUNDED, UNBOUNDED
    elif isinstance(window, tuple):
        if len(window) != 2:
            raise ArgumentError(function, "window", window, "two numbers, (left, right)")
        left, right = window
        check_size(function, "window[0]", left, minimum=UNBOUNDED)
        check_size(function, "window[1]", right, minimum=UNBOUNDED)
    else:
        check_size(function, "window", window)
        left, right = (window - 1, 0) if causal else (window // 2, (window - 1) // 2)
    return left, 0 if causal else right


def visible_range(position: int, keys: int, left: int, right: int) -> tuple[int, int]:
    """First and last key that the query at this position sees; the first is larger if there is none."""
    first = 0 if left == UNBOUNDED else max(0, position - left)
    last = keys - 1 if right == UNBOUNDED else min(keys - 1, position + right)
    return first, last


def visible_pairs(
    q_len: int, k_len: int | None = None, *, causal: bool = False, window: Window = None
) -> int:
    """Pairs of a query and a key that it sees. The last query is aligned with the last key.

    N * N without a mask, N * (N + 1) / 2 if causal.
    """
    name = "visible_pairs"
    k_len = q_len if k_len is None else k_len
    check_size(name, "q_len", q_len, minimum=0)
    check_size(name, "k_len", k_len, minimum=0)
    check_type(name, "causal", causal, bool, "a bool")
    left, right = window_limits(name, causal, window)
    ranges = (visible_range(row + k_len - q_len, k_len, left, right) for row in range(q_len))
    return sum(max(0, last - first + 1) for first, last in ranges)


def attention_flops(
    batch_size: int,
    num_heads: int,
    seq_len: int,
    head_dim: int,
    *,
    kv_len: int | None = None,
    causal: bool = False,
    window: Window = None,
) -> int:
    """Operations of a forward pass: (4 d + 5) for each visible pair, batch and query head."""
    for argument, size in (("batch_size", batch_size), ("num_heads", num_heads), ("head_dim", head_dim)):
        check_size("attention_flops", argument, size)
    pairs = visible_pairs(seq_len, kv_len, causal=causal, window=window)
    return (4 * head_dim + PER_PAIR) * batch_size * num_heads * pairs


def attention_bytes(
    batch_size: int,
    num_heads: int,
    seq_len: int,
    head_dim: int,
    element_bytes: int = 4,
    *,
    num_kv_heads: int | None = None,
    kv_len: int | None = None,
    fused: bool = True,
) -> int:
    """Bytes that a forward pass moves at least.

    Fused: query, key, value and output once. Not fused: besides, the scores and the weights, each written
    once and read once.
    """
    kv_len = seq_len if kv_len is None else kv_len
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    sizes = {"batch_size": batch_size, "num_heads": num_heads, "head_dim": head_dim, "num_kv_heads": kv_heads}
    for argument, size in {**sizes, "element_bytes": element_bytes}.items():
        check_size("attention_bytes", argument, size)
    query, key = num_heads * seq_len * head_dim, kv_heads * kv_len * head_dim
    matrices = 0 if fused else 4 * num_heads * seq_len * kv_len
    return batch_size * element_bytes * (2 * query + 2 * key + matrices)
