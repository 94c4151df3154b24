"""Which tokens a step computes: decodes first, then drafts, then prefill, within one budget of tokens."""

from array import array
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from .page_allocator import Copies, PageAllocator
from .plan import Row
from .queues import Queues
from .request import RequestState, Status

# From the rows of answers, with their drafts, to the tokens of prompts beside them; None: no bound.
PromptBound = Callable[[int], int | None]


class Limits(NamedTuple):
    """What bounds a step."""

    step_tokens: int  # rows of a forward pass
    max_running: int
    watermark: Fraction  # free pages for each running request that a start must leave


class Chosen(NamedTuple):
    """The rows of a step, and what they cost others."""

    rows: list[Row]
    copies: Copies
    preempted: list[RequestState]
    started: list[RequestState]


def choose(queues: Queues, tables: PageAllocator, limits: Limits, bound: PromptBound | None = None) -> Chosen:
    """Choose the rows of the next step, take their pages, and move requests between the queues."""
    copies: Copies = []
    decoding, preempted = _decodes(queues, tables, copies)
    prefilling = queues.running[len(decoding) :]
    left = limits.step_tokens - len(decoding)
    # Drafts may be wrong, prefill is not: half of the budget stays for it.
    for_drafts = left // 2 if prefilling or queues.waiting else left
    rows = []
    for state in decoding:
        drafts = _drafts(state, tables, for_drafts) if state.drafts else 0
        for_drafts -= drafts
        left -= drafts
        rows.append(_row(state, 1, drafts, tables))
    if bound and decoding and (prefilling or queues.waiting):
        most = bound(sum(len(row.token_ids) for row in rows))
        left = left if most is None else min(left, most)
    left = _prefill(prefilling, left, rows, tables)
    # No plan starts what it preempts, although a request may find its tokens in pages of an older one.
    started = [] if preempted else _start(queues, tables, limits, left, rows)
    return Chosen(rows, copies, preempted, started)


def follow(rows: Sequence[Row], queues: Queues, tables: PageAllocator) -> list[Row] | None:
    """The rows after a step whose tokens are not known yet: one more token of each answer.

    None where these tokens, or requests that wait, decide what comes next.
    """
    rows = [row for row in rows if row.state.status is Status.RUNNING]
    if queues.waiting or [row.state for row in rows] != queues.running:
        return None
    if any(row.logits != 1 or row.scored > 1 or row.state.choices > 1 for row in rows):
        return None
    rows = [row for row in rows if row.state.num_output + 1 < row.state.max_tokens]
    new = sum(row.stop // row.page_size >= len(row.state.pages) for row in rows)
    if not rows or tables.pool.num_free < new:
        return None
    copies: Copies = []
    for row in rows:
        tables.grow(row.state, copies, ahead=len(row.token_ids))
    assert not copies, "the page of a token that was just computed has another owner"
    return [row._replace(start=row.stop, token_ids=array("i", [0]), pages=row.state.pages[:]) for row in rows]


def _decodes(
    queues: Queues, tables: PageAllocator, copies: Copies
) -> tuple[list[RequestState], list[RequestState]]:
    """The requests that decode a token, and the newest ones, which lose their pages to them.

    The oldest request is never preempted: alone it fits, or `Scheduler.add` had refused it.
    """
    decoding: list[RequestState] = []
    preempted: list[RequestState] = []
    running = queues.running
    number = 0
    while number < len(running):
        state = running[number]
        number += 1
        if state.pending > 1:  # only the newest one is in prefill: the others got their tokens before it
            break
        while not tables.grow(state, copies):
            victim = queues.put_back()
            tables.release(victim)
            victim.preemptions += 1
            preempted.append(victim)
            if victim is state:
                break
        else:
            decoding.append(state)
    return decoding, preempted


def _drafts(state: RequestState, tables: PageAllocator, budget: int) -> int:
    """How many drafts are verified. They preempt nobody, and the answer cannot become too long."""
    if state.choices > 1:  # all answers follow the same last token of the prompt
        return 0
    remaining = state.max_tokens - state.num_output - 1
    return tables.grow_for_drafts(state, max(0, min(len(state.drafts), remaining, budget)))


def _prefill(states: list[RequestState], left: int, rows: list[Row], tables: PageAllocator) -> int:
    """Chunks in the order of arrival; return the budget that is left."""
    for state in states:
        if left == 0:
            break
        chunk = min(state.pending, left)
        rows.append(_row(state, chunk, 0, tables))
        left -= chunk
    return left


def _start(
    queues: Queues, tables: PageAllocator, limits: Limits, left: int, rows: list[Row]
) -> list[RequestState]:
    """Start waiting requests in the order of arrival; none overtakes one that does not fit."""
    started: list[RequestState] = []
    places = queues.places if queues.waiting else 0
    while left and queues.waiting:
        state = queues.waiting[0]
        if places + state.choices > limits.max_running:
            break
        if not tables.start(state, spare=ceil(limits.watermark * places)):
            break
        tables.copy_beginning(state)
        queues.start_next()
        places += state.choices
        state.prefill_end = len(state.token_ids)
        started.append(state)
        left = _prefill([state], left, rows, tables)
    return started


def _row(state: RequestState, number: int, drafts: int, tables: PageAllocator) -> Row:
    start, stop = state.computed, state.computed + number
    tokens = state.token_ids[start:stop]
    if drafts:
        tokens.extend(state.drafts[:drafts])
    logits = 1 + drafts if stop == len(state.token_ids) else 0
    return Row(state, start, tokens, logits, state.pages[:], tables.pool.page_size)
