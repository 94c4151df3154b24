"""One token for each row of logits, without drafts."""

from collections.abc import Sequence

import mlx.core as mx

from tiny_llm.sampling.rows import Drawn, RowSampler, verify_rows


def sample_rows(
    logits: mx.array, rows: Sequence[RowSampler], logprobs: Sequence[int | None] | None = None
) -> list[Drawn]:
    """The next token of each row from its `logits` [R, V]."""
    return [drawn for drawn, *_ in verify_rows(logits, rows, [()] * len(rows), logprobs)]
