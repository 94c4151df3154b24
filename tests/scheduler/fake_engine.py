"""An engine around the scheduler whose model is a hash: it is fast, and a wrong page gives a wrong token."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

from tiny_llm.scheduler import Plan, RequestState, Row, Scheduler, Status

VOCABULARY = 3  # few, so that prompts often begin alike and wrong drafts are sometimes right
GARBAGE = (-1, -1)

Draft = Callable[[RequestState], Sequence[int]]


def next_token(token_ids: Iterable[int], choice: int) -> int:
    """The token after `token_ids` in answer `choice`, which depends on all of them and on their order."""
    return zlib.crc32(repr((list(token_ids), choice)).encode()) % VOCABULARY


def continuation(prompt_ids: Sequence[int], choice: int, number: int) -> list[int]:
    """The answer of a request that runs alone, without pages."""
    token_ids = list(prompt_ids)
    for _ in range(number):
        token_ids.append(next_token(token_ids, choice))
    return token_ids[len(prompt_ids) :]


def no_drafts(state: RequestState) -> Sequence[int]:
    return ()


class FakeEngine:
    """Runs plans on a memory of slots. A token is computed from what is read through the page tables."""

    def __init__(self, scheduler: Scheduler, draft: Draft = no_drafts):
        self.scheduler = scheduler
        self.draft = draft
        self.states: list[RequestState] = []  # all that were ever added or forked
        self.plans: list[Plan] = []
        self._memory: dict[int, tuple[int, int]] = {}  # slot -> token and its position, as keys and values

    def add(self, prompt_ids: Sequence[int], max_tokens: int = 4, **options: object) -> RequestState:
        name = str(len(self.states))
        state = RequestState(name, prompt_ids, max_tokens, **options)  # type: ignore[arg-type]
        self.scheduler.add(state)
        self.states.append(state)
        return state

    def step(self, now: float | None = None) -> Plan:
        """Plan, compute, commit; requests that are complete finish."""
        plan = self.plan(now)
        if plan.rows:
            self.commit(plan, self.compute(plan))
        return plan

    def run(self, steps: int = 1000) -> int:
        """Step until nothing is queued; return the number of steps."""
        for number in range(steps):
            if not self.scheduler.running and not self.scheduler.waiting:
                return number
            self.step()
        raise AssertionError(f"still running after {steps} steps")

    def plan(self, now: float | None = None) -> Plan:
        for state in self.scheduler.running:
            state.drafts = self.draft(state) if state.pending == 1 else ()
        plan = self.scheduler.plan(now)
        self.plans.append(plan)
        return plan

    def compute(self, plan: Plan) -> dict[RequestState, list[int]]:
        """The forward pass: all rows are written before any is read. Rows at the end of a prompt fork."""
        self.copy(plan)
        for row in plan.rows:
            self._write(row, list(zip(row.token_ids, range(row.start, row.stop), strict=True)))
        tokens = {}
        for row in plan.rows:
            if row.logits and row.state.status is Status.RUNNING:
                states = self.scheduler.fork(row.state)
                self.states += states[1:]
                for state in states:
                    tokens[state] = self._accepted(row, state.choice)
        return tokens

    def spoil(self, plan: Plan) -> None:
        """A forward pass that fails after it wrote wrong keys and values."""
        self.copy(plan)
        for row in plan.rows:
            self._write(row, [GARBAGE] * len(row.token_ids))

    def fail(self, plan: Plan) -> None:
        """A forward pass that fails before its copies are made."""
        self.spoil(plan)
        for _, target in plan.copies:
            for offset in range(plan.rows[0].page_size):
                self._memory[target * plan.rows[0].page_size + offset] = GARBAGE

    def plan_ahead(self) -> None:
        """The next plan, where it does not depend on the open one. It may write while pages change owners."""
        plan = self.scheduler.plan_ahead()
        if plan is not None:
            self.spoil(plan)

    def commit(self, plan: Plan, tokens: dict[RequestState, list[int]]) -> None:
        self.scheduler.commit(plan, tokens)
        for state in tokens:
            if state.num_output == state.max_tokens:
                self.scheduler.finish(state, "length")

    def copy(self, plan: Plan) -> None:
        for source, target in plan.copies:
            size = plan.rows[0].page_size
            for offset in range(size):
                self._memory[target * size + offset] = self._memory.get(source * size + offset, GARBAGE)

    def _write(self, row: Row, content: list[tuple[int, int]]) -> None:
        for slot, value in zip(row.slots, content, strict=True):
            self._memory[slot] = value

    def _accepted(self, row: Row, choice: int) -> list[int]:
        """The drafts that are what the model says, and the token after them."""
        tokens: list[int] = []
        for place, draft in zip(range(row.stop - row.logits, row.stop), [*row.drafts, None], strict=True):
            tokens.append(next_token(self._read(row, place + 1), choice))
            if tokens[-1] != draft:
                break
        return tokens

    def _read(self, row: Row, number: int) -> list[int]:
        """The first `number` tokens of a request, through its pages."""
        size = row.page_size
        slots = [row.pages[place // size] * size + place % size for place in range(number)]
        content = [self._memory.get(slot, GARBAGE) for slot in slots]
        assert [position for _, position in content] == list(range(number)), f"wrong positions in {row}"
        return [token for token, _ in content]


def assert_answer(state: RequestState) -> None:
    """The tokens so far are those of the request alone."""
    assert state.output_ids == continuation(state.prompt_ids, state.choice, state.num_output)


def assert_at_rest(engine: FakeEngine, num_pages: int) -> None:
    """Nothing is queued, and every page is free."""
    engine.scheduler.check()
    assert (list(engine.scheduler.running), list(engine.scheduler.waiting)) == ([], [])
    assert engine.scheduler.pool.num_free == num_pages
