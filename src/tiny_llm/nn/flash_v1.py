"""FlashAttention with the loop over keys outside."""

from ..ops.arguments import AttentionOptions
from .tiled import TiledAttention


class FlashAttentionV1(TiledAttention):
    """Attention by the schedule V1, to compare with V2: the state of all rows passes through memory.

    Results and gradients are those of V2. Where no kernel runs the schedule, `explain` says which one did.
    """

    takes_masks = False

    def options(self) -> AttentionOptions:
        return {**super().options(), "schedule": "v1"}
