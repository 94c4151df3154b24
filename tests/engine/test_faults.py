"""What goes wrong ends the requests that it concerns, and no others."""

import gc
import threading
import weakref

import mlx.core as mx
import pytest

from tiny_llm.engine import Engine, steps
from tiny_llm.engine import engine as engine_module
from tiny_llm.engine.answer import Answer
from tiny_llm.errors import ArgumentError, EngineFailed, GrammarError, OutOfMemoryError, StepFailed
from tiny_llm.sampling.grammar import Grammar, GrammarState
from tiny_llm.sampling.grammar import state as grammar_state

from ..support.engine_requests import PROMPTS, alone, assert_at_rest, computing, read, request_of
from ..support.stepped_engine import stepped_engine


def test_a_step_that_fails_ends_the_running_requests_only(llm, engine, monkeypatch):
    logits = engine._steps.runner.logits
    failing = threading.Event()

    def fail_once(plan):
        if failing.is_set():
            failing.clear()
            raise MemoryError("no room")
        return logits(plan)

    assert read(engine.submit(request_of(llm, PROMPTS[2]))) == alone(llm, PROMPTS[2])
    monkeypatch.setattr(engine._steps.runner, "logits", fail_once)
    victim = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"ignore_eos": True}))
    next(victim)
    failing.set()
    events = list(victim)
    assert events[-1].finish_reason == "error"
    assert isinstance(events[-1].error, MemoryError)
    again = engine.submit(request_of(llm, PROMPTS[2]))
    assert read(again) == alone(llm, PROMPTS[2])  # its pages had been in the cache
    assert again.cached_tokens == 0
    assert_at_rest(engine)


def test_a_request_that_waits_is_answered_after_a_step_that_failed(llm, monkeypatch):
    with Engine(llm, max_context=512, max_running=1, page_size=8) as engine:
        running = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"ignore_eos": True}))
        next(running)
        waiting = engine.submit(request_of(llm, PROMPTS[1]))
        runner, faults = engine._steps.runner, [ZeroDivisionError()]
        logits = runner.logits

        def fail_once(plan):
            if faults:
                raise faults.pop()
            return logits(plan)

        monkeypatch.setattr(runner, "logits", fail_once)
        assert list(running)[-1].finish_reason == "error"
        assert read(waiting) == alone(llm, PROMPTS[1])


def test_a_request_that_is_cancelled_while_its_tokens_are_drawn_ends_alone(llm, engine, monkeypatch):
    drawn = steps.sample

    def cancel_before(*arguments):
        cancelled.cancel()
        return drawn(*arguments)

    cancelled = engine.submit(request_of(llm, PROMPTS[0], 400, sampling={"ignore_eos": True}))
    next(cancelled)
    monkeypatch.setattr(steps, "sample", cancel_before)
    assert read(engine.submit(request_of(llm, PROMPTS[1]))) == alone(llm, PROMPTS[1])
    assert list(cancelled)[-1].finish_reason == "cancelled"
    assert not engine.failed
    assert_at_rest(engine)


@pytest.mark.parametrize("place", ["logits", "fork", "take", "event", "commit"])
def test_an_argument_that_is_refused_inside_a_step_is_no_mistake_of_the_caller(
    llm, engine, monkeypatch, caplog, place
):
    """In the model, where a prompt splits, in one answer, and where the engine does not survive it."""
    fault = ArgumentError("RoPE", "offset", "an internal name", "another one")

    def refuse(*_):
        raise fault

    owners = {"logits": engine._steps.runner, "commit": engine._scheduler}
    owners |= dict.fromkeys(("fork", "take", "event"), Answer)
    monkeypatch.setattr(owners[place], place, refuse)
    events = list(engine.submit(request_of(llm, PROMPTS[0], n=2 if place == "fork" else 1)))
    assert {event.finish_reason for event in events} == {"error"}
    assert {type(event.error) for event in events} == {StepFailed}
    assert {event.error.__cause__ for event in events} == {fault}
    assert engine.failed == (place == "commit")
    assert "RoPE: offset: got an internal name" in caplog.text


def test_logits_of_nan_fail_one_answer_alone(llm, engine, monkeypatch):
    logits = engine._steps.runner.logits

    def spoil(plan):
        given = logits(plan)
        rows = [
            number
            for number, row in enumerate(row for row in plan.rows if row.logits)
            if row.state.id == "bad"
        ]
        return given.at[mx.array(rows)].add(mx.nan) if rows else given

    monkeypatch.setattr(engine._steps.runner, "logits", spoil)
    bad = engine.submit(request_of(llm, PROMPTS[1], id="bad"))
    good = engine.submit(request_of(llm, PROMPTS[0]))
    assert list(bad)[-1].finish_reason == "error"
    assert read(good) == alone(llm, PROMPTS[0])
    assert_at_rest(engine)


def test_a_grammar_at_its_limit_ends_one_answer_and_not_the_engine(llm, engine, monkeypatch):
    accept = GrammarState.accept

    def refuse_third_token(state, tokens):
        accept(state, tokens)
        state.seen = getattr(state, "seen", 0) + len(tokens)
        if state.seen >= 3:
            raise GrammarError("too many items")

    monkeypatch.setattr(GrammarState, "accept", refuse_third_token)
    good = engine.submit(request_of(llm, PROMPTS[0]))
    bad = engine.submit(request_of(llm, PROMPTS[1], grammar=Grammar.regex("[a-z ]+")))
    last = list(bad)[-1]
    assert last.finish_reason == "error"
    assert isinstance(last.error, GrammarError)
    assert read(good) == alone(llm, PROMPTS[0])
    assert not engine.failed
    assert_at_rest(engine)


def test_a_grammar_that_takes_too_long_ends_its_answers_and_no_others(llm, engine, monkeypatch):
    monkeypatch.setattr(grammar_state, "MOST", 0.0)
    monkeypatch.setattr(grammar_state, "PER_TOKEN", 0.0)
    good = engine.submit(request_of(llm, PROMPTS[0]))
    slow = request_of(llm, PROMPTS[1], n=2, grammar=Grammar.regex("[a-z ]+ slowly"))
    events = list(engine.submit(slow))
    assert [(event.choice, event.finish_reason) for event in events] == [(0, "error"), (1, "error")]
    assert all("takes too much time for each token" in str(event.error) for event in events)
    with pytest.raises(ArgumentError, match="takes too much time for each token"):
        engine.submit(slow)
    assert read(good) == alone(llm, PROMPTS[0])
    assert_at_rest(engine)


@pytest.mark.parametrize("fault", [GrammarError("too many items"), ValueError("a fault of llguidance")])
def test_a_grammar_that_fails_at_its_mask_ends_one_answer(llm, engine, monkeypatch, fault):
    allowed = GrammarState.allowed

    def explode(state, held_back=()):
        state.seen = getattr(state, "seen", 0) + 1
        if state.seen == 3:
            raise fault
        return allowed(state, held_back)

    monkeypatch.setattr(GrammarState, "allowed", explode)
    good = engine.submit(request_of(llm, PROMPTS[0]))
    bad = engine.submit(request_of(llm, PROMPTS[1], grammar=Grammar.regex("[a-z ]+")))
    last = list(bad)[-1]
    assert last.finish_reason == "error"
    assert fault in (last.error, last.error.__cause__)
    assert isinstance(last.error, GrammarError if isinstance(fault, GrammarError) else StepFailed)
    assert read(good) == alone(llm, PROMPTS[0])
    assert_at_rest(engine)


def test_an_observer_that_fails_ends_no_request(llm, engine, caplog):
    engine.observe(lambda timings: 1 / 0)
    seen = []
    engine.observe(seen.append)
    assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])
    assert_at_rest(engine)
    assert len(seen) == 1
    assert "an observer failed" in caplog.text


def test_a_prompt_that_cannot_split_ends_all_its_answers(llm, engine, monkeypatch):
    monkeypatch.setattr(Answer, "fork", lambda *arguments: 1 / 0)
    other = engine.submit(request_of(llm, PROMPTS[1]))
    next(other)
    events = list(engine.submit(request_of(llm, PROMPTS[0], n=3)))
    assert [(event.choice, event.finish_reason) for event in events] == [(i, "error") for i in range(3)]
    assert list(other)[-1].finish_reason == "length"
    assert_at_rest(engine)


def test_a_prompt_that_cannot_split_leaves_those_of_its_step(monkeypatch):
    monkeypatch.setattr(Answer, "fork", lambda *arguments: 1 / 0)
    engine = stepped_engine(16, 4, max_running=4)
    handles = [engine.submit(request_of(engine.llm, prompt, 3, n=n)) for prompt, n in (("ab", 2), ("c", 1))]
    while engine.step():
        pass
    assert [list(handle)[-1].finish_reason for handle in handles] == ["error", "length"]
    engine.check()


def test_an_allocation_that_mlx_refuses_is_an_out_of_memory_error(llm, engine, monkeypatch):
    def refuse(plan):
        raise RuntimeError("[malloc] Unable to allocate 4096 bytes.")

    with monkeypatch.context() as patch:
        patch.setattr(engine._steps.runner, "logits", refuse)
        (event,) = engine.submit(request_of(llm, PROMPTS[0]))
    assert isinstance(event.error, OutOfMemoryError)
    assert read(engine.submit(request_of(llm, PROMPTS[0]))) == alone(llm, PROMPTS[0])


def test_a_fault_of_the_engine_itself_ends_all_requests(llm, monkeypatch, caplog):
    engine = Engine(llm, max_context=512, page_size=8)
    monkeypatch.setattr(engine._scheduler, "commit", lambda *arguments: 1 / 0)
    events = list(engine.submit(request_of(llm, PROMPTS[0], n=2)))
    assert [event.finish_reason for event in events] == ["error", "error"]
    assert engine.failed
    assert not engine.alive(60)
    assert "the engine stopped" in caplog.text
    with pytest.raises(EngineFailed):
        engine.submit(request_of(llm, PROMPTS[0]))
    engine.close()


def test_close_waits_for_the_step_that_is_computed(llm, monkeypatch):
    """Then no thread uses the memory of the model."""
    with computing(llm, monkeypatch) as (engine, handle, gate):
        closing = threading.Thread(target=engine.close, daemon=True)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        gate.set()
        assert list(handle)[-1].finish_reason == "cancelled"
        closing.join(30)
        assert not closing.is_alive()


def test_an_engine_that_cannot_start_says_why(llm, monkeypatch):
    """Its maker goes on when the reason is known, and not before."""
    ready = []

    def fail(engine):
        end_all = engine._answers.end_all
        engine._answers.end_all = lambda *ends: (ready.append(engine._ready.is_set()), end_all(*ends))
        return 1 / 0

    monkeypatch.setattr(Engine, "_make_steps", fail)
    with pytest.raises(ZeroDivisionError):
        Engine(llm, max_context=64)
    assert ready == [False]


def test_neither_an_error_nor_a_closed_engine_holds_pages(llm, engine, monkeypatch):
    def refuse(model, batch, storage, blocks):
        raise MemoryError("no room")

    before = weakref.ref(engine._steps.runner.storage)
    with monkeypatch.context() as patch:
        patch.setattr("tiny_llm.engine.runner.packed_logits", refuse)
        (event,) = engine.submit(request_of(llm, PROMPTS[0]))
    read(engine.submit(request_of(llm, PROMPTS[0], 2)))
    after = weakref.ref(engine._steps.runner.storage)
    assert isinstance(event.error, MemoryError)
    assert before() is None
    engine.close()
    assert after() is None


@pytest.mark.parametrize("ends", ["closed", "failed"])
def test_an_engine_that_has_ended_can_be_collected(llm, monkeypatch, ends):
    monkeypatch.setattr(engine_module.LOG, "disabled", True)  # pytest keeps the frames of an error
    engine = Engine(llm, max_context=64, page_size=8)
    last = engine.submit(request_of(llm, PROMPTS[0], 4))
    if ends == "failed":
        monkeypatch.setattr(engine._scheduler, "commit", lambda *arguments: 1 / 0)
    list(last)
    if ends == "closed":
        engine.close()
    engine._stopped.wait(60)
    engine = weakref.ref(engine)
    del last
    gc.collect()
    assert engine() is None
