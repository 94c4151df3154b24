"""What one step computes: rows of tokens, pages to copy before, requests that left; totals of all steps."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

from .request import RequestState


class Row(NamedTuple):
    """Tokens of one request in a step: a decoded token, its drafts, or a chunk of a prompt.

    They are at positions `start` and following, and see all tokens before them. `pages` are those of the
    request in order, including the ones that the new tokens are written to.
    """

    state: RequestState
    start: int
    token_ids: array[int]
    logits: int  # the last so many tokens need logits: 0 inside a prompt, 1 + the number of drafts at its end
    pages: array[int]
    page_size: int

    @property
    def scored(self) -> int:
        """How many of the last tokens have logits: `logits` of them, or all in a chunk of a scored prompt.

        A prompt that is computed again after its first token has been scored.
        """
        inside = self.state.needs_prompt_logprobs and self.start < len(self.state.prompt_ids) - 1
        return len(self.token_ids) if inside else self.logits

    @property
    def stop(self) -> int:
        """The number of tokens after this row: the context length of its last token."""
        return self.start + len(self.token_ids)

    @property
    def is_prefill(self) -> bool:
        """Whether the first token was known when the request started, for the first time or again."""
        return self.start < self.state.prefill_end

    @property
    def slots(self) -> array[int]:
        """Where the new tokens are written: page * page_size + offset, in 64 bits."""
        size = self.page_size
        places = range(self.start, self.stop)
        return array("q", [self.pages[place // size] * size + place % size for place in places])

    @property
    def drafts(self) -> array[int]:
        """The last tokens, which are to be verified."""
        return self.token_ids[len(self.token_ids) - self.logits + 1 :] if self.logits else array("i")

    def set_draft(self, place: int, token_id: int) -> None:
        """Replace a draft that was planned as a placeholder."""
        self.token_ids[len(self.token_ids) - self.logits + 1 + place] = token_id


class Plan(NamedTuple):
    """One step. Before its rows are computed, the pages of `copies` are copied, in this order.

    A source may be the target of a later copy, but not the other way round, so all sources may be read first.
    """

    rows: tuple[Row, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()  # (from page, to page)
    started: tuple[RequestState, ...] = ()  # for the first time, or again after a preemption
    preempted: tuple[RequestState, ...] = ()  # they wait again; their samplers and texts stay as they are
    expired: tuple[RequestState, ...] = ()  # finished, because their deadline has passed


@dataclass(slots=True)
class Counters:
    """Totals since the scheduler was made."""

    steps: int = 0
    prefill_tokens: int = 0  # computed in prefill, including those of resumed requests
    decode_tokens: int = 0  # computed one by one, or as drafts
    recomputed_tokens: int = 0  # computed again after a preemption
    preemptions: int = 0
    prefix_queries: int = 0  # prompt tokens of started requests
    prefix_hits: int = 0  # those found in the cache, in shared or copied pages
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
