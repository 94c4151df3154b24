"""FlashAttention with the loop over queries outside."""

from ..checks.types import check_size
from .efficiency import causal_blocks
from .tiled import TiledAttention


class FlashAttentionV2(TiledAttention):
    """Attention by the schedule V2: each tile of queries meets all its keys, and its state stays on chip."""

    takes_masks = False

    def get_causal_efficiency(self, seq_len: int) -> dict[str, float]:
        """How many tiles of block_size rows and keys are computed, and the percentage that is saved."""
        check_size(self.name, "seq_len", seq_len, minimum=0)
        total, computed = causal_blocks(seq_len, self.block_size, self.causal)
        return {
            "total_blocks": total,
            "computed_blocks": computed,
            "skipped_blocks": total - computed,
            "compute_savings_percent": 100 * (total - computed) / total if total else 0.0,
            "sequence_length": seq_len,
            "block_size": self.block_size,
        }
