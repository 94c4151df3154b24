"""Random requests, steps and faults: every answer is that of its request alone, and no page is lost.

tests/scheduler/test_random_schedules.py does the same to the scheduler; here are also samplers, grammars,
texts, stop strings, drafts, faults and handles.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tiny_llm.engine import EngineRequest
from tiny_llm.errors import OutOfMemoryError, QueueFull
from tiny_llm.sampling.grammar import Grammar
from tiny_llm.sampling.params import Sampling
from tiny_llm.scheduler import RequestState

from ..support.stepped_engine import VOCABULARY, answer_alone, likely_tokens, stepped_engine

MAX_RUNNING, MAX_WAITING = 4, 5
PATIENCE = 1000.0  # seconds of a deadline, which passes when a test says so
SAMPLINGS: list[dict[str, Any]] = [
    {},
    {"temp": 0.8},
    {"temp": 1.2, "top_p": 0.9, "top_k": 50},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"stop": "ab", "min_tokens": 2},
    {"temp": 1.0, "min_p": 0.05, "logit_bias": {5: 4.0}},
]
GRAMMARS = [Grammar.regex("[ab]{2,7}c"), Grammar.json_schema({"enum": ["yes", "no", [1, 2, 3]]})]


REQUESTS = st.fixed_dictionaries(
    {
        "length": st.integers(1, 14),
        "last": st.integers(0, 2),
        "max_tokens": st.integers(1, 14),
        "n": st.integers(1, 3),
        "sampling": st.sampled_from(SAMPLINGS),
        "seed": st.integers(0, 3),
        "grammar": st.sampled_from([None, None, None, *GRAMMARS]),
        "logprobs": st.sampled_from([None, None, 0, 2]),
        "deadline": st.sampled_from([None, None, None, PATIENCE]),
        "salt": st.sampled_from(["", "", "other"]),
    }
)


class Reader:
    """What has arrived of a request, and what it must be in the end."""

    def __init__(self, handle: Any, request: EngineRequest):
        self.handle, self.request = handle, request
        self.cancelled = False
        self.texts, self.reasons = [""] * request.n, [None] * request.n
        self.tokens: list[tuple[int, ...]] = [()] * request.n
        self.logprobs: list[list[Any]] = [[] for _ in range(request.n)]
        self._alone: list[Any] = [None] * request.n

    @property
    def ended(self) -> bool:
        return None not in self.reasons

    def alone(self, choice: int) -> tuple[str, tuple[int, ...], list[Any], str]:
        if self._alone[choice] is None:
            self._alone[choice] = answer_alone(self.request, choice)
        return self._alone[choice]

    def read(self) -> None:
        """Without waiting for more."""
        while self.handle._events:
            event = next(self.handle)
            assert self.reasons[event.choice] is None, "an event after the last one"
            # A step fails only where this test makes it fail.
            assert event.error is None or isinstance(event.error, OutOfMemoryError), event.error
            self.texts[event.choice] += event.text
            self.tokens[event.choice] += event.token_ids
            self.logprobs[event.choice] += event.logprobs or ()
            self.reasons[event.choice] = event.finish_reason

    def check(self) -> None:
        for choice, reason in enumerate(self.reasons):
            text, tokens, logprobs, last = self.alone(choice)
            if reason in ("stop", "length"):
                assert (self.texts[choice], self.tokens[choice], reason) == (text, tokens, last)
                assert self.logprobs[choice] == logprobs
            else:  # cancelled, too late, failed, or not at the end
                assert reason != "cancelled" or self.cancelled
                assert reason != "deadline" or self.request.deadline is not None
                assert self.tokens[choice] == tokens[: len(self.tokens[choice])]
                assert text.startswith(self.texts[choice]) or reason is not None


class Requests(RuleBasedStateMachine):
    """A small pool that is often exhausted."""

    @initialize(
        num_pages=st.integers(4, 12),
        page_size=st.integers(1, 5),
        step_tokens=st.integers(MAX_RUNNING, 12),
        prefix_cache=st.booleans(),
        lookup=st.booleans(),
    )
    def start(self, num_pages: int, page_size: int, **options: Any) -> None:
        self.engine = stepped_engine(
            num_pages, page_size, max_running=MAX_RUNNING, max_waiting=MAX_WAITING, **options
        )
        self.readers: list[Reader] = []
        self.steps_made = 0

    @rule(requests=st.lists(REQUESTS, min_size=2, max_size=5))
    def submit(self, requests: list[dict[str, Any]]) -> None:
        for options in requests:
            request = self.request(**options)
            if self.engine.statistics().waiting >= MAX_WAITING:  # preempted requests wait, too
                with pytest.raises(QueueFull):
                    self.engine.submit(request)
            else:
                self.readers.append(Reader(self.engine.submit(request), request))

    @rule(times=st.integers(2, 8))
    def steps(self, times: int) -> None:
        """With the drafts of the engine."""
        for _ in range(times):
            self.step()

    @rule(times=st.integers(2, 5), right=st.integers(0, 4), wrong=st.integers(0, 2))
    def steps_with_drafts(self, times: int, right: int, wrong: int) -> None:
        """With drafts that are right for a while."""
        for _ in range(times):
            for state in self.engine._scheduler.running:
                if state.pending == 1:
                    state.drafts = self.drafts(state, right, wrong)
            self.step()

    @precondition(lambda self: self.readers and self.steps_made % 4 == 3)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        reader = self.end(data)
        reader.read()
        assert reader.ended

    def end(self, data: st.DataObject) -> Reader:
        """Cancel any request, also one that has ended."""
        reader = data.draw(st.sampled_from(self.readers))
        reader.cancelled = True
        reader.handle.cancel()
        return reader

    @precondition(lambda self: self.readers and self.steps_made % 4 == 1)
    @rule(data=st.data())
    def cancel_during_a_step(self, data: st.DataObject) -> None:
        """It ends before the next one."""
        found: list[Reader] = []
        self.engine.runner.during = lambda: found.append(self.end(data))
        self.step()
        self.step()
        for reader in found:
            reader.read()
            assert reader.ended

    @precondition(lambda self: self.steps_made % 4 == 2)
    @rule()
    def deadlines_pass(self) -> None:
        self.engine.step(time.monotonic() + 2 * PATIENCE)
        self.engine.check()
        for reader in self.readers:
            reader.read()
            assert reader.ended or reader.request.deadline is None

    @precondition(lambda self: self.steps_made % 8 == 7)  # not too often: it ends many requests
    @rule()
    def fail_a_step(self) -> None:
        failed = []

        def fail() -> None:
            failed.append(True)
            raise RuntimeError("[malloc] Unable to allocate 4096 bytes.")

        self.engine.runner.during = fail
        self.step()
        if failed:  # else nothing is computed now: the step was started before the last one was read
            assert self.engine.statistics().running == 0
            assert self.engine.statistics().pages_used == 0

    @invariant()
    def answers_are_right(self) -> None:
        self.engine.check()
        for reader in self.readers:
            reader.read()
            reader.check()

    def request(
        self, length: int, last: int, max_tokens: int, sampling: dict[str, Any], seed: int, **options: Any
    ) -> EngineRequest:
        """Prompts begin alike, and differ in their last token."""
        letters = likely_tokens()
        length = min(length, self.engine.context - 1)
        prompt = [*(letters[place % 2] for place in range(length - 1)), letters[last]]
        limit = min(max_tokens, self.engine.context - length)
        early = min(sampling.get("min_tokens", 0), limit)
        options["sampling"] = Sampling(seed=seed, max_tokens=limit, **sampling | {"min_tokens": early})
        return EngineRequest(prompt_ids=prompt, id=str(len(self.readers)), **options)

    def step(self) -> bool:
        worked = self.engine.step()
        self.engine.runner.during = lambda: None
        self.steps_made += 1
        assert not self.engine.failed
        self.engine.check()
        return worked

    def drafts(self, state: RequestState, right: int, wrong: int) -> list[int]:
        _, tokens, *_ = self.readers[int(state.id)].alone(state.choice)
        rest = list(tokens[state.num_output :])
        end = (rest[right] if right < len(rest) else 0) + 1
        return rest[:right] + [end % VOCABULARY] * wrong

    def teardown(self) -> None:
        """What is left ends, in a bounded number of steps, and every page is free."""
        if not hasattr(self, "engine"):
            return
        for _ in range(2000):
            if not self.step():
                break
        self.answers_are_right()
        assert [reader.request.id for reader in self.readers if not reader.ended] == []
        statistics = self.engine.statistics()
        assert (statistics.running, statistics.waiting, statistics.pages_used) == (0, 0, 0)
        read = sum(len(tokens) for reader in self.readers for tokens in reader.tokens)
        assert statistics.generation_tokens == read
        self.engine.close()


TestRequests = Requests.TestCase
# An example has about twenty requests, and takes 0.3 s. New examples are sought in CI, in a run of its own.
EXAMPLES = 40 if settings.get_current_profile_name() == "explore" else 8
TestRequests.settings = settings(max_examples=EXAMPLES, stateful_step_count=50)
