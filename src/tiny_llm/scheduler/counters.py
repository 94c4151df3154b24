"""Numbers that only grow, for metrics and benchmarks."""

from dataclasses import dataclass

from .plan import Row
from .request import RequestState


@dataclass(slots=True)
class Counters:
    """Totals since the scheduler was made."""

    steps: int = 0
    prefill_tokens: int = 0  # computed in prefill, including those of resumed requests
    decode_tokens: int = 0  # computed one by one, or as drafts
    recomputed_tokens: int = 0  # computed again after a preemption
    preemptions: int = 0
    prefix_queries: int = 0  # prompt tokens of started requests
    prefix_hits: int = 0  # those found in the cache
    drafted_tokens: int = 0  # verified
    accepted_tokens: int = 0  # drafts that were right

    def count_query(self, state: RequestState) -> None:
        """A request that starts for the first time, and is looked up in the cache."""
        self.prefix_queries += len(state.token_ids)
        self.prefix_hits += state.cached_tokens

    def count_row(self, row: Row) -> None:
        """A row that was computed; its request is still as planned."""
        number = len(row.token_ids)
        if row.is_prefill:
            self.prefill_tokens += number
        else:
            self.decode_tokens += number
        if row.start < row.state.furthest:
            self.recomputed_tokens += min(row.state.furthest - row.start, number)

    def count_drafts(self, row: Row, accepted: int) -> None:
        """The drafts of a row."""
        self.drafted_tokens += len(row.drafts)
        self.accepted_tokens += accepted
