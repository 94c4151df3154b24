"""What an engine says of itself, to the last figure, by a clock of its own."""

import time

import mlx.core as mx

from tiny_llm.engine import EngineRequest, EngineStatistics, Timings, statistics
from tiny_llm.errors import NumericError
from tiny_llm.sampling.params import Sampling

from ..support.stepped_engine import likely_tokens, stepped_engine


class Clock:
    """A second passes between two steps, and a quarter of one while a step is computed; none starts ahead."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def run(self, engine, steps):
        engine.runner.starts_at_once = False
        engine.runner.during = lambda: self.pass_by(0.25)
        for _ in range(steps):
            assert engine.step()
            self.pass_by(1.0)

    def pass_by(self, seconds):
        self.now += seconds


def letters(text, max_tokens, **options):
    """A request whose prompt has a token for each letter."""
    ids = [likely_tokens()["abc".index(letter)] for letter in text]
    return EngineRequest(prompt_ids=ids, sampling=Sampling(max_tokens=max_tokens, ignore_eos=True), **options)


def test_the_timings_of_answers_that_wait_run_and_end(monkeypatch):
    engine, clock, observed = stepped_engine(16, 4, max_running=2, lookup=False), Clock(monkeypatch), []
    engine.observe(observed.append)
    first = engine.submit(letters("abcab", 3, n=2))
    clock.pass_by(3.0)
    waiting = engine.submit(letters("b", 2))
    clock.run(engine, 3)
    cancelled = engine.submit(letters("c", 9))
    clock.pass_by(2.0)
    cancelled.cancel()
    clock.run(engine, 2)
    assert not engine.step()
    assert first.timings == dict.fromkeys(range(2), Timings("length", 3, 3.0, 3.25, 5.75))
    assert waiting.timings == {0: Timings("length", 2, 5.75, 6.0, 7.25)}
    assert cancelled.timings == {0: Timings("cancelled", 0, 2.0, None, 2.0)}
    # The ends of `first` are published beside the step after.
    assert observed == [cancelled.timings[0], *first.timings.values(), waiting.timings[0]]
    assert (first.submitted_at, waiting.submitted_at, cancelled.submitted_at) == (100.0, 103.0, 106.75)


def test_a_budget_that_is_given_is_used_whole_beside_answers(monkeypatch):
    engine, clock = stepped_engine(16, 4, max_running=2, step_tokens=8, lookup=False), Clock(monkeypatch)
    engine.submit(letters("a", 9))
    clock.run(engine, 2)
    engine.submit(letters("abc" * 4, 9))
    clock.run(engine, 3)
    assert engine.statistics().step_tokens == (1, 1, 8, 6, 2)


def test_the_sizes_of_the_latest_steps_are_kept(monkeypatch):
    monkeypatch.setattr(statistics, "RECENT_STEPS", 3)
    engine, clock = stepped_engine(16, 4, max_running=1, lookup=False), Clock(monkeypatch)
    engine.submit(letters("abcab", 4))
    for expected in ((5,), (5, 1), (5, 1, 1), (1, 1, 1)):
        clock.run(engine, 1)
        assert engine.statistics().step_tokens == expected


def test_nan_after_a_right_draft_ends_the_answer(monkeypatch):
    engine = stepped_engine(16, 4, max_running=1)
    logits = engine.runner.logits

    def spoil(plan):
        given = logits(plan)
        return given.at[-1].add(mx.nan) if plan.rows[-1].logits > 1 else given

    monkeypatch.setattr(engine.runner, "logits", spoil)
    handle = engine.submit(letters("abc" * 4, 16))
    while engine.step():
        pass
    *_, last = handle
    assert isinstance(last.error, NumericError)
    assert (last.finish_reason, handle.timings[0].generated_tokens) == ("error", 1)


def test_statistics_count_hits_drafts_and_preemptions(monkeypatch):
    engine, clock = stepped_engine(10, 4, max_running=2), Clock(monkeypatch)
    handles = [engine.submit(letters("abc" * 4, 16))]
    clock.run(engine, 2)
    handles += [engine.submit(letters(text, 14)) for text in ("abc" * 4 + "a", "cb")]
    clock.run(engine, 4)
    assert engine.statistics() == EngineStatistics(
        running=1, waiting=2, pages_total=10, pages_used=5, page_size=4, prefix_queries=12, prefix_hits=0,
        preemptions=0, prompt_tokens=12, generation_tokens=6, drafted_tokens=1, accepted_tokens=1,
        steps=6, step_tokens=(12, 2, 1, 1, 1, 1), last_step_at=106.25,
    )  # fmt: skip
    clock.run(engine, 23)
    assert not engine.step()
    steps = "12 2 1 1 1 1 1 4 1 1 2 3 1 1 3 3 2 2 2 2 2 3 2 3 2 2 2 1 3"
    assert engine.statistics() == EngineStatistics(
        running=0, waiting=0, pages_total=10, pages_used=0, page_size=4, prefix_queries=27, prefix_hits=12,
        preemptions=1, prompt_tokens=27, generation_tokens=44, drafted_tokens=11, accepted_tokens=3,
        steps=29, step_tokens=tuple(map(int, steps.split())), last_step_at=136.25,
    )  # fmt: skip
    assert [handle.cached_tokens for handle in handles] == [0, 12, 0]
    assert [handle.prompt_tokens for handle in handles] == [12, 13, 2]
