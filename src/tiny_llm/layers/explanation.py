"""What `tiny_llm.attention.explain` answers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """How one attention call is computed, and what it costs."""

    path: str
    """Which implementation: cpu.tiled, cpu.split (over the keys) or reference; `last_run` shows the same."""
    fused: bool
    """Whether it is one of our kernels, with memory linear in the lengths."""
    reasons: tuple[str, ...]
    """Why a kernel does not apply."""
    schedule: str
    """v2 (over query tiles), split (over query tiles and chunks of keys) or dense."""
    tile: tuple[int, int]
    """Rows and keys of one score tile; the query heads of a group count as rows."""
    splits: int
    """Chunks into which the keys of a sequence are cut, at most."""
    tiles_visited: int
    """Score tiles that hold a visible key."""
    tiles_total: int
    mask_read: str
    """none, broadcast (it repeats itself along rows or keys) or tile."""
    copies_bytes: int
    """Inputs whose last axis is not dense are copied; the size of these copies."""
    workspace_bytes: int
    """Memory beside inputs and outputs, the copies included."""
    workspace_bytes_backward: int
    saved_bytes: int
    """What a gradient keeps alive: query, key, value, output and log-sum-exp."""
    math: str
    """What the products are computed in: ieee-f32, or bf16 with float32 sums."""
    deterministic: bool
    batch_invariant: bool
    backward_path: str
    """Which implementation computes the gradient."""
