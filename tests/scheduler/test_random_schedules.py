"""Random requests, cancels, deadlines, forks, drafts and failed steps: every answer is the one alone."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import Plan, RequestState, Scheduler, Status

from .fake_engine import VOCABULARY, FakeEngine, assert_answer, assert_at_rest, continuation

MAX_RUNNING = 4


class Schedules(RuleBasedStateMachine):
    """A small pool that is often exhausted."""

    @initialize(
        num_pages=st.integers(3, 10),
        page_size=st.integers(1, 5),
        step_tokens=st.integers(MAX_RUNNING, 8),
        watermark=st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1)]),
        prefix_cache=st.booleans(),
    )
    def start(
        self, num_pages: int, page_size: int, step_tokens: int, watermark: Fraction, prefix_cache: bool
    ) -> None:
        self.pool = PagePool(num_pages, page_size)
        self.scheduler = Scheduler(
            self.pool, step_tokens, MAX_RUNNING, 8, watermark=watermark, prefix_cache=prefix_cache
        )
        self.step_tokens = step_tokens
        self.right, self.wrong = 0, 0
        self.engine = FakeEngine(self.scheduler, self.draft)
        self.now = 0.0

    def draft(self, state: RequestState) -> list[int]:
        """Some right tokens, then wrong ones."""
        right = continuation(state.token_ids, state.choice, self.right + 1)
        return right[:-1] + [(right[-1] + 1) % VOCABULARY] * self.wrong

    @precondition(lambda self: len(self.scheduler.waiting) < 8)
    @rule(
        pages=st.integers(0, 3),
        more=st.integers(-1, 1),
        token=st.integers(0, VOCABULARY - 1),
        max_tokens=st.integers(1, 16),
        choices=st.integers(1, 3),
        salt=st.sampled_from(["", "", "other"]),
        patience=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    )
    def add(
        self,
        pages: int,
        more: int,
        token: int,
        max_tokens: int,
        choices: int,
        salt: str,
        patience: int | None,
    ) -> None:
        """Lengths around whole pages, and beginnings that other prompts have, too."""
        length = max(1, pages * self.pool.page_size + more)
        prompt = [*[0] * (length - 1), token]
        max_tokens = min(max_tokens, self.pool.num_pages * self.pool.page_size - length + 1)
        if max_tokens > 0:
            deadline = None if patience is None else self.now + patience
            self.engine.add(prompt, max_tokens, choices=choices, salt=salt, deadline=deadline)

    @rule(times=st.integers(1, 6), right=st.integers(0, 4), wrong=st.integers(0, 2), ahead=st.booleans())
    def steps(self, times: int, right: int, wrong: int, ahead: bool) -> None:
        for _ in range(times):
            plan = self.plan(right, wrong)
            if plan.rows:
                tokens = self.engine.compute(plan)
                if ahead:
                    self.engine.plan_ahead()
                self.engine.commit(plan, tokens)
            self.answers_are_right_and_pages_are_owned()

    @rule(right=st.integers(0, 4), data=st.data())
    def cancel_during_a_step(self, right: int, data: st.DataObject) -> None:
        plan = self.plan(right, 1)
        if plan.rows:
            self.cancel(data)
            tokens = self.engine.compute(plan)
            self.engine.plan_ahead()
            self.cancel(data)
            self.engine.commit(plan, tokens)

    @precondition(lambda self: len(self.engine.plans) % 8 == 7)  # not too often: it ends many requests
    @rule()
    def fail_a_step(self) -> None:
        plan = self.plan(2, 1)
        if plan.rows:
            self.engine.fail(plan)
            failed = self.scheduler.discard(plan)
            assert failed == [row.state for row in plan.rows]

    @precondition(lambda self: self.engine.states)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Of any request, also of one that has ended."""
        state = data.draw(st.sampled_from(self.engine.states))
        was_running = state.status is not Status.FINISHED
        assert self.scheduler.cancel(state) == was_running
        assert not self.scheduler.cancel(state)

    @invariant()
    def answers_are_right_and_pages_are_owned(self) -> None:
        self.scheduler.check()
        assert all(state.pending == 1 for state in self.scheduler.running[:-1])
        for state in self.engine.states:
            assert_answer(state)
            assert state.num_output <= state.max_tokens

    def plan(self, right: int, wrong: int) -> Plan:
        """The next step, within its bounds; the oldest request is part of it, so none starves."""
        self.right, self.wrong = right, wrong
        self.now += 1
        queued = [*self.scheduler.running, *self.scheduler.waiting]
        expired = [state for state in queued if state.deadline is not None and state.deadline <= self.now]
        left = [state for state in queued if state not in expired]
        plan = self.engine.plan(self.now)
        assert list(plan.expired) == expired
        assert sum(len(row.token_ids) for row in plan.rows) <= self.step_tokens
        assert left[:1] == [row.state for row in plan.rows if row.state is left[0]]
        assert not {*left[:1], *plan.started} & set(plan.preempted)
        decodes = [len(row.token_ids) <= row.logits for row in plan.rows if row.state not in plan.started]
        assert decodes == sorted(decodes, reverse=True)
        return plan

    def teardown(self) -> None:
        """What is left ends, in a bounded number of steps."""
        if hasattr(self, "engine"):
            self.right = self.wrong = 0
            self.engine.run()
            assert_at_rest(self.engine, self.pool.num_pages)
            self.answers_are_right_and_pages_are_owned()
            finished = [state for state in self.engine.states if state.reason == "length"]
            assert all(state.num_output == state.max_tokens for state in finished)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=150, stateful_step_count=40)
