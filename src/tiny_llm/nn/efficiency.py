"""How many blocks of scores causal attention computes."""


def causal_blocks(seq_len: int, block_size: int, causal: bool) -> tuple[int, int]:
    """(all, computed) blocks of a head: with causal attention those on and below the diagonal."""
    side = -(-seq_len // block_size)
    return side**2, side * (side + 1) // 2 if causal else side**2
