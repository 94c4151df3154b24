"""Requests in, one plan for each step out, new tokens back in."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from ..cache.pages import PagePool
from ..cache.prefix_index import PrefixIndex
from ..checks.types import check_number, check_size
from ..errors import ArgumentError, QueueFull
from .accept import check_accepted
from .page_allocator import PageAllocator
from .plan import Counters, Plan, Row
from .policy import Limits, PromptBound, choose, follow
from .queues import Queues
from .request import RequestState, Status


class Scheduler:
    """Decides what each step computes, for requests that share the pages of one pool.

    `plan`, the forward pass, then `commit`. For one thread. A step computes at most `step_tokens` tokens, and
    at most `max_running` requests have pages. A waiting request starts when all its known tokens have pages
    and `watermark` free pages for each running request are left.
    """

    def __init__(
        self,
        pool: PagePool,
        step_tokens: int = 512,
        max_running: int = 64,
        max_waiting: int = 256,
        watermark: Fraction = Fraction(1, 4),
        prefix_cache: bool = True,
        model: str = "",
    ):
        check_size("Scheduler", "max_running", max_running)
        check_size("Scheduler", "step_tokens", step_tokens)
        if step_tokens < max_running:  # each running request decodes a token in each step
            raise ArgumentError(
                "Scheduler", "step_tokens", step_tokens, f"at least max_running, {max_running}"
            )
        check_size("Scheduler", "max_waiting", max_waiting)
        check_number("Scheduler", "watermark", watermark)
        if watermark < 0:
            raise ArgumentError("Scheduler", "watermark", watermark, "at least 0")
        self.counters = Counters()
        self._max_waiting = max_waiting
        self._limits = Limits(step_tokens, max_running, Fraction(watermark))
        self.pool = pool
        self._queues = Queues()
        self._tables = PageAllocator(pool, PrefixIndex(pool.page_size, model) if prefix_cache else None)
        self._open: Plan | None = None  # planned, and not committed
        self._ahead: Plan | None = None  # the one after it
        self._forks: dict[RequestState, list[RequestState]] = {}  # since the open plan

    @property
    def running(self) -> Sequence[RequestState]:
        """Requests with pages, the oldest first."""
        return tuple(self._queues.running)

    @property
    def waiting(self) -> Sequence[RequestState]:
        """Requests without pages, the oldest first; they are newer than all running ones."""
        return tuple(self._queues.waiting)

    def add(self, state: RequestState) -> None:
        """Queue a new request. ArgumentError if it can never run; QueueFull if too many wait."""
        if state.status is not Status.NEW:
            raise ArgumentError(
                "Scheduler.add", "state", f"a request that is {state.status}", "a new request"
            )
        self.check_fits(state)
        if len(self._queues.waiting) >= self._max_waiting:
            raise QueueFull(self._max_waiting)
        self._queues.add(state)

    def check_fits(self, state: RequestState) -> None:
        """Raise ArgumentError for a request that can never run. May be called from any thread."""
        self._tables.check_fits(state)
        if state.choices > self._limits.max_running:
            raise ArgumentError(
                "Scheduler.add", "choices", state.choices, f"at most {self._limits.max_running}"
            )

    def plan(self, now: float | None = None, bound: PromptBound | None = None) -> Plan:
        """The next step; without rows if there is nothing to do. `now` ends requests past their deadline.

        `bound` gives the most tokens of prompts beside so many rows of answers and drafts; None is no bound.
        """
        if self._open is not None:
            raise ArgumentError(
                "Scheduler.plan", "", "a plan without commit or discard", "one plan at a time"
            )
        expired = self._expire(now)
        ahead, self._ahead = self._ahead, None
        if ahead is not None and any(row.state.status is Status.RUNNING for row in ahead.rows):
            for row in ahead.rows:
                row.token_ids[:] = row.state.token_ids[row.start : row.stop]
            self._open = ahead._replace(expired=tuple(expired))
            return self._open
        rows, copies, preempted, started = choose(self._queues, self._tables, self._limits, bound)
        copies += [state.beginning for state in started if state.beginning is not None]
        for state in started:
            if state.preemptions == 0:
                state.cached_tokens = state.computed
                if not state.needs_prompt_logprobs:
                    self.counters.count_query(state)
        self.counters.preemptions += len(preempted)
        plan = Plan(tuple(rows), tuple(copies), tuple(started), tuple(preempted), tuple(expired))
        if rows:
            self._open = plan
        return plan

    def plan_ahead(self) -> Plan | None:
        """The step after the open plan, before its tokens are known: `plan` returns it next.

        Its rows have a token of each request that does not end with the open plan by its length. `plan` puts
        the tokens in their place; rows of requests that have ended all the same are without. None where the
        tokens of the open plan, or requests that wait, decide what comes next.
        """
        if self._open is None or self._forks:
            return None
        rows = follow(self._open.rows, self._queues, self._tables)
        self._ahead = None if rows is None else Plan(tuple(rows))
        return self._ahead

    def fork(self, state: RequestState) -> list[RequestState]:
        """Split a request whose prompt is computed by the open plan into its `choices` answers.

        They share its pages; each copies a page before it writes to it. The first one is `state` itself. Call
        it before `commit`, which takes tokens of each. A request with one answer is returned alone.
        """
        if state.choices == 1:
            return [state]
        planned = self._open is not None and any(row.state is state and row.logits for row in self._open.rows)
        if not planned or state.status is not Status.RUNNING:
            raise ArgumentError(
                "Scheduler.fork", "state", state.id, "a request whose prompt ends in the open plan"
            )
        others = [state.fork(choice) for choice in range(1, state.choices)]
        state.choices = 1
        for other in others:
            self._tables.share(other)
        self._queues.fork(others)
        self._forks[state] = others
        return [state, *others]

    def commit(self, plan: Plan, tokens: Mapping[RequestState, Sequence[int]]) -> None:
        """After the forward pass: the new tokens of each request whose row has logits.

        These are the accepted drafts and one more token. Requests that finished since the plan are ignored.
        """
        self._check_open("commit", plan)
        committed = [(row, self._answers(row)) for row in plan.rows]
        check_accepted(committed, tokens)
        self._close()
        self.counters.steps += 1
        for row, states in committed:
            self.counters.count_row(row)
            for state in states:
                self._advance(state, row, tokens.get(state, ()))

    def discard(self, plan: Plan, reason: str = "error") -> list[RequestState]:
        """After a forward pass that failed: finish the requests of the plan, whose pages may be damaged."""
        self._check_open("discard", plan)
        states = [state for row in plan.rows for state in self._answers(row)]
        self._close()
        self._ahead = None
        for state in states:
            self.finish(state, reason)
        self._tables.forget_copies(plan.copies)
        return states

    def finish(self, state: RequestState, reason: str = "stop") -> bool:
        """Give back the pages of a request, whenever; False if it had finished before.

        What is computed in them can be found by other requests until they are reused.
        """
        if state.status is Status.NEW:
            raise ArgumentError(
                "Scheduler.finish", "state", f"the new request {state.id}", "one that was added"
            )
        if state.status is Status.FINISHED:
            return False
        self._queues.remove(state)
        self._tables.release(state)
        state.status, state.reason = Status.FINISHED, reason
        return True

    def cancel(self, state: RequestState) -> bool:
        """Like `finish`, with the reason "cancelled"."""
        return self.finish(state, "cancelled")

    def forget_pages(self) -> None:
        """The content of all pages is lost: no cached prefix is found any more. Nothing may be running."""
        if self._queues.running:
            raise ArgumentError("Scheduler.forget_pages", "", "running requests", "waiting requests only")
        self._tables.forget()

    def check(self) -> None:
        """Raise AssertionError unless pages, owners and queues are consistent. Slow: for tests."""
        self._queues.check()
        self._tables.check(self._queues.running)
        assert self._queues.places <= self._limits.max_running, "more requests run than may"

    def _expire(self, now: float | None) -> list[RequestState]:
        if now is None:
            return []
        queued = [*self._queues.running, *self._queues.waiting]
        expired = [state for state in queued if state.deadline is not None and state.deadline <= now]
        for state in expired:
            self.finish(state, "deadline")
        return expired

    def _advance(self, state: RequestState, row: Row, new: Sequence[int]) -> None:
        """The row is computed, and all its drafts that are not among `new` are rejected."""
        state.computed = row.stop
        if row.logits > len(new):
            state.computed -= row.logits - len(new)
        state.furthest = max(state.furthest, state.computed)
        state.token_ids.extend(new)
        state.drafts = ()
        if row.logits > 1:
            self.counters.count_drafts(row, len(new) - 1)
            self._tables.shrink(state)
        self._tables.register(state)

    def _answers(self, row: Row) -> list[RequestState]:
        """The request of a row, with its forks, without those that finished since the plan."""
        states = [row.state, *self._forks.get(row.state, ())]
        return [state for state in states if state.status is Status.RUNNING]

    def _check_open(self, operation: str, plan: Plan) -> None:
        if plan is not self._open:
            raise ArgumentError(f"Scheduler.{operation}", "plan", "another plan", "the one planned last")

    def _close(self) -> None:
        self._open = None
        self._forks = {}
