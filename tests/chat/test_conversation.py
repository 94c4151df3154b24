"""A conversation: which turns are in a prompt, and which are dropped when the context is full."""

from __future__ import annotations

import pytest

from tiny_llm.chat.conversation import Conversation

CONTEXT, RESERVE = 400, 100  # a quarter is kept free


def render(messages: list[dict[str, str]]) -> str:
    return "".join(f"[{message['role'][0]}:{message['content']}]" for message in messages)


@pytest.fixture
def conversation() -> Conversation:
    """A character is a token."""
    return Conversation(render, len, context=CONTEXT, system="S")


def test_all_turns_are_in_the_prompt_in_order(conversation: Conversation) -> None:
    assert conversation.prompt_for("one").text == "[s:S][u:one]"
    conversation.add_turn("one", "two")
    prompt = conversation.prompt_for("three")
    assert (prompt.text, prompt.dropped_turns) == ("[s:S][u:one][a:two][u:three]", 0)
    assert conversation.turns == [("one", "two")]
    assert Conversation(render, len, context=9).prompt_for("one").text == "[u:one]"


def test_the_oldest_turns_are_dropped_until_half_of_the_context_is_free(conversation: Conversation) -> None:
    for turn in range(20):
        question = f"q{turn:02}"
        prompt = conversation.prompt_for(question)
        assert len(prompt.text) <= CONTEXT - RESERVE
        assert prompt.text.startswith("[s:S]")
        if prompt.dropped_turns:
            assert len(prompt.text) <= CONTEXT // 2
            one_more = len("[u:q00][a:]") + 20
            assert len(prompt.text) + one_more > CONTEXT // 2
        conversation.add_turn(question, "x" * 20)
    assert [question for question, _ in conversation.turns][-1] == "q19"
    assert prompt.text.count("[u:") < 20


def test_a_long_question_drops_all_turns_and_one_beyond_the_context_none(
    conversation: Conversation,
) -> None:
    for turn in range(3):
        conversation.add_turn(f"q{turn}", "x" * 20)
    prompt = conversation.prompt_for("y" * CONTEXT)
    assert (prompt.dropped_turns, len(conversation.turns)) == (0, 3)
    assert len(prompt.text) > CONTEXT
    prompt = conversation.prompt_for("y" * 350)
    assert (prompt.dropped_turns, len(conversation.turns)) == (3, 3)
    assert conversation.prompt_for("short").dropped_turns == 0  # it was not answered
    conversation.prompt_for("y" * 350)
    conversation.add_turn("long", "short")
    assert conversation.turns == [("long", "short")]
    assert conversation.dropped_turns == 3
    assert prompt.text == f"[s:S][u:{'y' * 350}]"


@pytest.mark.parametrize(("max_tokens", "room"), [(250, 150), (20, 380), (CONTEXT, 300), (10**9, 300)])
def test_space_is_kept_for_max_tokens(conversation: Conversation, max_tokens: int, room: int) -> None:
    longest = 0
    for turn in range(40):
        prompt = conversation.prompt_for(f"q{turn:02}", max_tokens)
        assert len(prompt.text) <= room
        longest = max(longest, len(prompt.text))
        conversation.add_turn(f"q{turn:02}", "x" * 20)
    assert longest > room - 50
    assert conversation.dropped_turns + len(conversation.turns) == 40


def test_finding_the_turns_to_drop_takes_few_prompts() -> None:
    written: list[int] = []

    def count(text: str) -> int:
        written.append(len(text))
        return len(text)

    conversation = Conversation(render, count, context=CONTEXT)
    for turn in range(1000):
        conversation.add_turn(f"{turn}", "x")
    assert conversation.prompt_for("last").text.endswith("[u:999][a:x][u:last]")
    assert len(written) < 15
