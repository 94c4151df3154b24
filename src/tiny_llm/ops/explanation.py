"""`explain` and its results. Each module registers the explainers of its functions."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ..errors import ArgumentError

Explainer = TypeVar("Explainer", bound=Callable[..., Any])

_explainers: dict[Callable[..., Any], Callable[..., Any]] = {}


def explains(*functions: Callable[..., Any]) -> Callable[[Explainer], Explainer]:
    """Decorator: `explain(f, ...)` with f among `functions` calls the decorated function with (f, ...)."""

    def register(explainer: Explainer) -> Explainer:
        _explainers.update(dict.fromkeys(functions, explainer))
        return explainer

    return register


def explain(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Explain how `function` would compute a call with these arguments, without running it.

    explain(flash_attention, query, key, value, mask="causal") -> Explanation
    explain(paged_attention, query, key_pages, value_pages, table, context_lens, page_size) -> Explanation
    explain(quantized_matmul, scales, biases, group_size, bits, a, b, True) -> ProductExplanation

    `function` is one of these, `flash_attention_varlen` or `attention_reference`, and the arguments are those
    of a call of it: for attention, the options of `flash_attention`. Unevaluated arrays are assumed dense;
    unevaluated lengths are assumed full.
    """
    if not callable(function) or function not in _explainers:
        known = ", ".join(sorted(known.__name__ for known in _explainers))
        raise ArgumentError("explain", "function", function, f"one of {known}")
    explainer = _explainers[function]
    try:  # Python's own error would name the explainer
        inspect.signature(explainer).bind(function, *arguments, **options)
    except TypeError as error:
        raise TypeError(f"{function.__name__}: {error}") from None
    return explainer(function, *arguments, **options)


@dataclass(frozen=True)
class ProductExplanation:
    """Which kernel computes a product with quantized weights.

    path: cpu.quantized_matmul, which is ours, or mlx.quantized_matmul
    reasons: why it is not ours
    """

    path: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """How one attention call is computed, and what it costs.

    path: cpu.tiled, cpu.split (over the keys), metal.<kernel>, mlx.scaled_dot_product_attention (on a GPU
        without a kernel of ours) or reference; `last_run` returns the same
    fused: whether it is one of our kernels, with memory linear in the lengths
    reasons: why no kernel applies, or why the best one does not; then why MLX's operation does not
    schedule: v2 (over query tiles, then key tiles), v1 (over key tiles, then all query tiles of a head),
        split (over query tiles and chunks of keys), dense, or mlx (MLX's choice)
    tile: rows and keys of one score tile; on the CPU the query heads of a GQA group count as rows
    splits: chunks into which the keys of a sequence are cut, at most
    tiles_visited: score tiles that hold a visible key
    tiles_total: score tiles of the whole table
    mask_read: none, broadcast (it repeats itself along rows or keys) or tile
    copies_bytes: bytes of inputs that must be copied to a dense layout
    workspace_bytes: memory beside inputs and outputs, the copies included; of MLX's operation, a bound
    workspace_bytes_backward: the same for the gradient
    saved_bytes: what a gradient keeps alive: query, key, value, output and log-sum-exp
    math: what the products are computed in: ieee-f32, bf16 with float32 sums, or mlx (MLX's choice)
    deterministic: whether each run gives the same bits
    batch_invariant: whether the bits of a row do not depend on the rest of the batch
    backward_path: which implementation computes the gradient: cpu.backward, reference,
        mlx.scaled_dot_product_attention, or none where there is no gradient
    backward_schedule: one_pass (dQ, dK and dV together, a task for each KV head of a sequence; float32, if
        these tasks keep all threads busy and all three gradients are wanted), two_passes (dQ, then dK and dV;
        the same bits), dense, mlx (MLX's choice) or none. Score tiles have the size of `tile` in the pass of
        dQ, and its rows and keys exchanged in the others
    """

    path: str
    fused: bool
    reasons: tuple[str, ...]
    schedule: str
    tile: tuple[int, int]
    splits: int
    tiles_visited: int
    tiles_total: int
    mask_read: str
    copies_bytes: int
    workspace_bytes: int
    workspace_bytes_backward: int
    saved_bytes: int
    math: str
    deterministic: bool
    batch_invariant: bool
    backward_path: str
    backward_schedule: str

    def __str__(self) -> str:
        """One line for each field; an empty list of reasons reads as none."""
        lines = {**asdict(self), "reasons": "; ".join(self.reasons) or "none"}
        return "\n".join(f"{name:<26}{value}" for name, value in lines.items())
