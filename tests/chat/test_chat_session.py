"""`ChatSession`: a conversation whose tokens are prefilled once."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from tiny_llm import (
    LLM,
    ArgumentError,
    ArgumentTypeError,
    ChatSession,
    NumericError,
    Sampling,
)
from tiny_llm.errors import StepFailed
from tiny_llm.generation.text import TextStream

from ..support.models.checkpoints import broken_copy

TURNS = ("My name is Emma.", "What is my name?", "Thank you.")
SYSTEM = "You are a helpful assistant."


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny", dtype="float32")


def test_answers_are_those_of_the_whole_chat_with_fewer_tokens_prefilled(llm: LLM) -> None:
    session = ChatSession(llm, system=SYSTEM)
    messages = [{"role": "system", "content": SYSTEM}]
    before = 0
    for question in TURNS:
        messages.append({"role": "user", "content": question})
        expected = llm.chat(messages, max_tokens=12)
        result = session.ask(question, max_tokens=12)
        assert (result.text, result.finish_reason) == (expected.text, expected.finish_reason)
        assert result.statistics.prompt_tokens == expected.statistics.prompt_tokens
        assert result.statistics.cached_tokens >= before
        assert (expected.statistics.cached_tokens, before > 0) == (0, question != TURNS[0])
        before = result.statistics.prompt_tokens
        messages.append({"role": "assistant", "content": result.text})
    assert [question for question, _ in session.turns] == list(TURNS)
    assert session.dropped_turns == 0


def test_a_full_context_drops_the_oldest_turns(llm: LLM) -> None:
    short = LLM("tiny", context=200)
    session = ChatSession(short)
    for turn in range(12):
        result = session.ask(f"Turn {turn}: " + "word " * 20, max_tokens=5)
        assert result.statistics.prompt_tokens <= 200 - 5
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


def test_refused_arguments_change_no_turn(llm: LLM) -> None:
    session = ChatSession(llm)
    session.ask(TURNS[0], max_tokens=2)
    with pytest.raises(ArgumentTypeError, match=r"^ChatSession.ask: question: got an int, expected a str$"):
        session.ask(7)
    with pytest.raises(
        ArgumentError, match=r"^ChatSession.ask: question: got \d+ tokens, expected fewer than"
    ):
        session.ask("word " * 3000)
    with pytest.raises(ArgumentError, match="max_tokens: got 0"):
        session.ask("Hello.", max_tokens=0)
    assert len(session.turns) == 1
    drawn = Sampling(temp=2.0, seed=3, max_tokens=6)
    first, second = (ChatSession(llm).ask("Hello.", sampling=drawn).text for _ in range(2))
    assert first == second


def test_a_draft_model_changes_no_answer(llm: LLM) -> None:
    alone, drafted = ChatSession(llm), ChatSession(LLM("tiny", dtype="float32", draft_model="tiny"))
    for question in TURNS:
        expected, found = (each.ask(question, max_tokens=12) for each in (alone, drafted))
        assert found.text == expected.text
        assert found.statistics.cached_tokens == expected.statistics.cached_tokens


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"llm": "tiny"}, "ChatSession: llm: got a str, expected an LLM"),
        ({"system": 7}, "ChatSession: system: got an int, expected a str"),
        ({"system": None}, "ChatSession: system: got None, expected a str"),
        ({"enable_thinking": "no"}, "ChatSession: enable_thinking: got a str, expected a bool"),
        ({"enable_thinking": True}, "ChatSession: enable_thinking: got True, expected False: the chat"),
        ({"system": "word " * 3000}, r"ChatSession: system: got \d+ tokens with a short question, expected "),
    ],
)
def test_arguments_that_allow_no_question_are_refused_at_once(
    llm: LLM, given: dict[str, object], sentence: str
) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match=f"^{sentence}"):
        ChatSession(**({"llm": llm} | given))


@pytest.mark.parametrize("method", ["ask", "stream"])
def test_the_arguments_of_an_answer_are_named(llm: LLM, method: str) -> None:
    call = getattr(ChatSession(llm), method)
    with pytest.raises(
        ArgumentTypeError, match=f"^ChatSession.{method}: sampling: got a str, expected a Samp"
    ):
        call("Hello.", "greedy")
    with pytest.raises(ArgumentError, match=f"^ChatSession.{method}: logprobs: got -1, "):
        call("Hello.", logprobs=-1)


def test_turns_are_dropped_for_max_tokens() -> None:
    session = ChatSession(LLM("tiny", context=200))
    for turn in range(12):
        result = session.ask(f"Turn {turn}: " + "word " * 10, max_tokens=140 if turn % 2 else 5)
        assert result.statistics.prompt_tokens <= (60 if turn % 2 else 195)


def test_an_answer_that_fails_drops_no_turn(tmp_path: Path) -> None:
    session = ChatSession(LLM(broken_copy(tmp_path / "broken"), context=200))
    for turn in range(8):
        session._conversation.add_turn(f"Turn {turn}", "word " * 20)
    for _ in range(3):
        with pytest.raises(NumericError):
            session.ask("And then?")
        assert (session.dropped_turns, len(session.turns)) == (0, 8)


def test_a_stream_becomes_a_turn_when_it_ends(llm: LLM) -> None:
    session, other = ChatSession(llm, system=SYSTEM), ChatSession(llm, system=SYSTEM)
    for question in TURNS:
        stream = session.stream(question, max_tokens=12, logprobs=2)
        pieces = [next(stream)]
        assert question not in dict(session.turns)
        pieces += stream
        expected = other.ask(question, max_tokens=12, logprobs=2)
        assert "".join(pieces) == stream.result.text == expected.text
        assert stream.result.logprobs == expected.logprobs
        assert stream.result.statistics.cached_tokens == expected.statistics.cached_tokens
    assert session.turns == other.turns


def test_a_stream_that_ends_early_becomes_a_turn(llm: LLM) -> None:
    session = ChatSession(llm)
    closed = session.stream("Tell me a short story about a brave fox.")
    said = next(closed) + next(closed)
    closed.close()
    [(_, kept)] = session.turns
    assert kept.startswith(said)
    assert len(kept) < len(said) + 40
    left = session.stream(TURNS[0])
    next(left)
    result = session.ask(TURNS[1], max_tokens=12)
    assert [question for question, _ in session.turns][1:] == list(TURNS[:2])
    assert list(left) == []
    messages = []
    for question, answer in session.turns[:-1]:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    expected = llm.chat([*messages, {"role": "user", "content": TURNS[1]}], max_tokens=12)
    assert result.text == expected.text
    session.stream("Hello.").close()  # nothing was said
    assert len(session.turns) == 3


def test_a_stream_that_fails_becomes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ChatSession(LLM("tiny", dtype="float32"))
    lost, add, added = session.stream(TURNS[0]), TextStream.add, itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(TextStream, "add", lambda *given: add(*given) if next(added) < 4 else 1 / 0)
        said = next(lost)
        with pytest.raises(StepFailed):
            list(lost)
    assert said
    assert lost.result.text.startswith(said)
    session.ask(TURNS[1], max_tokens=4)
    assert [question for question, _ in session.turns] == [TURNS[1]]


def test_stop_strings_end_an_answer(llm: LLM) -> None:
    session = ChatSession(llm)
    whole = session.ask(TURNS[0]).text
    session.reset()
    end = whole.split()[1]
    assert session.ask(TURNS[0], stop=end).text == whole[: whole.index(end)]
    session.reset()
    assert session.ask(TURNS[0], Sampling(stop=end)).text == whole[: whole.index(end)]


def test_reset_drops_the_turns_and_close_frees_the_caches(llm: LLM) -> None:
    session = ChatSession(llm, system=SYSTEM)
    first = session.ask(TURNS[0], max_tokens=12)
    session.ask(TURNS[1], max_tokens=12)
    session.reset()
    assert (session.turns, session.dropped_turns) == ([], 0)
    again = session.ask(TURNS[0], max_tokens=12)
    assert again.text == first.text
    assert again.statistics.cached_tokens == again.statistics.prompt_tokens - 1
    session.close()
    assert session.ask(TURNS[1], max_tokens=12).statistics.cached_tokens == 0
    assert len(session.turns) == 2
