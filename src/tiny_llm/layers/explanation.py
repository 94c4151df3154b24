"""What `tiny_llm.attention.explain` answers."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Explanation:
    """How one attention call is computed, and what it costs.

    path: which implementation: cpu.tiled, cpu.split (over the keys), metal. and the name of the
        kernel, or reference; `last_run` shows the same
    fused: whether it is one of our kernels, with memory linear in the lengths
    reasons: why a kernel does not apply, or not the one that would be best
    schedule: v2 (over query tiles), split (over query tiles and chunks of keys) or dense
    tile: rows and keys of one score tile; on the CPU the query heads of a group count as rows
    splits: chunks into which the keys of a sequence are cut, at most
    tiles_visited: score tiles that hold a visible key
    tiles_total: score tiles of the whole table
    mask_read: none, broadcast (it repeats itself along rows or keys) or tile
    copies_bytes: inputs that the kernel cannot read where they lie are copied; the size of these copies
    workspace_bytes: memory beside inputs and outputs, the copies included
    workspace_bytes_backward: the same for the gradient
    saved_bytes: what a gradient keeps alive: query, key, value, output and log-sum-exp
    math: what the products are computed in: ieee-f32, or bf16 with float32 sums
    deterministic: whether each run gives the same bits
    batch_invariant: whether the bits of a row do not depend on the rest of the batch
    backward_path: which implementation computes the gradient
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

    def __str__(self) -> str:
        """One line for each field; an empty list of reasons reads as none."""
        lines = {**asdict(self), "reasons": "; ".join(self.reasons) or "none"}
        return "\n".join(f"{name:<26}{value}" for name, value in lines.items())
