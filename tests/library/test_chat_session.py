"""`ChatSession`: a conversation that the model reads once."""

from __future__ import annotations

import threading

import pytest

from tiny_llm import LLM, ArgumentError, ArgumentTypeError, ChatSession, Sampling, UnsupportedError

TURNS = ("My name is Emma.", "What is my name?", "Thank you.")
SYSTEM = "You are a helpful assistant."


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", dtype="float32")


def test_it_answers_as_a_chat_that_is_told_everything_and_reads_less(llm: LLM) -> None:
    session = ChatSession(llm, system=SYSTEM)
    told = [{"role": "system", "content": SYSTEM}]
    before = 0
    for question in TURNS:
        told.append({"role": "user", "content": question})
        expected = llm.chat(told, max_tokens=12)
        result = session.ask(question, max_tokens=12)
        assert (result.text, result.finish_reason) == (expected.text, expected.finish_reason)
        assert result.statistics.prompt_tokens == expected.statistics.prompt_tokens
        assert result.statistics.cached_tokens >= before
        assert (expected.statistics.cached_tokens, before > 0) == (0, question != TURNS[0])
        before = result.statistics.prompt_tokens
        told.append({"role": "assistant", "content": result.text})
    assert [question for question, _ in session.turns] == list(TURNS)
    assert session.dropped_turns == 0


def test_a_full_context_lets_the_oldest_turns_go(llm: LLM) -> None:
    short = LLM("tiny", context=200)
    session = ChatSession(short)
    for turn in range(12):
        result = session.ask(f"Turn {turn}: " + "word " * 20, max_tokens=5)
        assert result.statistics.prompt_tokens <= 150
    assert session.dropped_turns + len(session.turns) == 12
    assert session.dropped_turns > 4
    assert session.turns[-1][0].startswith("Turn 11")


def test_it_may_move_between_threads(llm: LLM) -> None:
    session = ChatSession(llm)
    results = []
    for question in TURNS:
        thread = threading.Thread(target=lambda q=question: results.append(session.ask(q, max_tokens=6)))
        thread.start()
        thread.join()
    alone = ChatSession(llm)
    assert [result.text for result in results] == [alone.ask(q, max_tokens=6).text for q in TURNS]
    assert all(result.statistics.cached_tokens for result in results[1:])


def test_what_cannot_be_used_is_refused_and_costs_no_turn(llm: LLM) -> None:
    session = ChatSession(llm)
    session.ask(TURNS[0], max_tokens=2)
    with pytest.raises(ArgumentTypeError, match=r"^ChatSession.ask: question: got int, expected a text$"):
        session.ask(7)
    with pytest.raises(ArgumentError, match=r"^ChatSession.ask: prompt: got \d+ tokens, expected fewer than"):
        session.ask("word " * 3000)
    with pytest.raises(ArgumentError, match="max_tokens: got 0"):
        session.ask("Hello.", max_tokens=0)
    assert len(session.turns) == 1
    drawn = Sampling(temp=2.0, seed=3, max_tokens=6)
    first, second = (ChatSession(llm).ask("Hello.", sampling=drawn).text for _ in range(2))
    assert first == second
    with pytest.raises(UnsupportedError, match=r"^ChatSession: llm: got one with a draft model"):
        ChatSession(LLM("tiny", draft_model="tiny"))
