"""Reasoning and tool calls in the text of an answer, however it is cut into parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiny_llm.engine import Event
from tiny_llm.server.api.pieces import (
    MAX_CALL_CHARS,
    MAX_SPACE,
    AnswerReader,
    Call,
    Content,
    Piece,
    Reasoning,
)

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": [1, "</x>"]}}\n</tool_call>'


def read(parts: list[str], **options: bool) -> list[Piece]:
    reader = AnswerReader(**options)
    return [piece for part in parts for piece in reader.feed(part)] + reader.finish()


def joined(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Neighbours of one kind as one; calls without their ids, which are random."""
    result: list[tuple[str, str]] = []
    for piece in pieces:
        if isinstance(piece, Call):
            result.append(("call", f"{piece.name} {piece.arguments}"))
            continue
        kind = type(piece).__name__
        if result and result[-1][0] == kind:
            result[-1] = (kind, result[-1][1] + piece.text)
        else:
            result.append((kind, piece.text))
    return result


ALL: dict[str, Any] = {"thinking": True, "tools": True}
F = ("call", 'f {"a":[1,"</x>"]}')
CASES: list[tuple[str, dict[str, bool], list[tuple[str, str]]]] = [
    ("hello", {}, [("Content", "hello")]),
    ("<think>a</think>b", {}, [("Content", "<think>a</think>b")]),
    (CALL, {}, [("Content", CALL)]),
    ("<think>\na\n</think>\n\nb", ALL, [("Reasoning", "a"), ("Content", "b")]),
    ("a\n</think>\n\nb", {"inside": True}, [("Reasoning", "a"), ("Content", "b")]),
    ("<think>never ends", ALL, [("Reasoning", "never ends")]),
    ("  <think>a</think>", ALL, [("Reasoning", "a")]),
    ("a <think>b", ALL, [("Content", "a <think>b")]),
    ("<thin", ALL, [("Content", "<thin")]),
    ("a <tool", ALL, [("Content", "a <tool")]),
    (CALL, ALL, [F]),
    (f"Let me see.\n{CALL}", ALL, [("Content", "Let me see."), F]),
    (f"{CALL}\n{CALL}", ALL, [F, F]),
    (f"<think>x</think>\n{CALL}", ALL, [("Reasoning", "x"), F]),
    (f"{CALL} and more", ALL, [F, ("Content", "and more")]),
    ("<tool_call>", ALL, [("Content", "<tool_call>")]),
    ("<tool_call>{", ALL, [("Content", "<tool_call>{")]),
    ("<tool_call>not JSON</tool_call>", ALL, [("Content", "<tool_call>not JSON</tool_call>")]),
    ("<tool_call>[]</tool_call>", ALL, [("Content", "<tool_call>[]</tool_call>")]),
    ('<tool_call>{"name": 5}</tool_call>', ALL, [("Content", '<tool_call>{"name": 5}</tool_call>')]),
    ('<tool_call>{"name": "g"}</tool_call>', ALL, [("call", "g {}")]),
    (
        '<tool_call>{"name": "g", "arguments": [1]}</tool_call>',
        ALL,
        [("Content", '<tool_call>{"name": "g", "arguments": [1]}</tool_call>')],
    ),
]


CUT: list[tuple[str, list[tuple[str, str]]]] = [
    ("", []),
    ("a <", [("Content", "a")]),
    ("a <b", [("Content", "a <b")]),
    ("a \n", [("Content", "a \n")]),
    ("a\n<tool_c", [("Content", "a")]),
    ("a\n<tool_call>", [("Content", "a")]),
    (CALL[:-3], []),
    (CALL + CALL[:-3], [F]),
    ("<think>a</think>" + CALL[:20], [("Reasoning", "a")]),
    ("<think>a <", [("Reasoning", "a <")]),
    ("<thi", []),
]


@pytest.mark.parametrize(("text", "expected"), CUT)
def test_a_call_that_is_cut_is_left_out(text: str, expected: list[tuple[str, str]]) -> None:
    for parts in ([text], list(text)):
        reader = AnswerReader(**ALL)
        pieces = [piece for part in parts for piece in reader.feed(part)]
        assert joined(pieces + reader.finish(cut=True)) == expected


@pytest.mark.parametrize(("text", "options", "expected"), CASES)
def test_a_text_is_split(text: str, options: dict[str, bool], expected: list[tuple[str, str]]) -> None:
    assert joined(read([text], **options)) == expected
    assert joined(read(list(text), **options)) == expected


PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", "a", "<", '{"name": "f"}', CALL]


@given(st.lists(st.sampled_from(PIECES)), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
@example(["<think>", "\n", "</think>", "\n"], True, True, None)
def test_the_cuts_do_not_matter(words: list[str], thinking: bool, tools: bool, random: Any) -> None:
    text = "".join(words)
    whole = joined(read([text], thinking=thinking, tools=tools))
    assert joined(read(list(text), thinking=thinking, tools=tools)) == whole
    if random is not None:
        cuts = sorted(random.randrange(len(text) + 1) for _ in range(4))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert joined(read(parts, thinking=thinking, tools=tools)) == whole


def test_a_long_call_is_read_once() -> None:
    """Characters that are looked at, instead of seconds: a reader that joins again and again reads 10^9."""
    looked_at = 0

    class Counted(str):
        def __add__(self, other: str) -> str:
            nonlocal looked_at
            looked_at += len(self) + len(other)
            return Counted(str(self) + other)

        def __radd__(self, other: str) -> str:
            nonlocal looked_at
            looked_at += len(self) + len(other)
            return Counted(other + str(self))

    reader = AnswerReader(tools=True)
    reader.feed("<tool_call>")
    parts = 100_000
    for _ in range(parts):
        assert reader.feed(Counted("></tool_cal")) == []
    assert looked_at < parts * 50
    assert joined(reader.finish()) == [("Content", "<tool_call>" + "></tool_cal" * parts)]


def test_a_call_that_is_too_long_is_content() -> None:
    arguments = json.dumps({"a": "x" * MAX_CALL_CHARS})
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    assert joined(read([text], tools=True)) == [("Content", text)]


def test_reasoning_and_content_come_as_soon_as_they_are_certain() -> None:
    reader = AnswerReader(thinking=True, tools=True)
    assert reader.feed("<think>one") == [Reasoning("one")]
    assert reader.feed(" two</thi") == [Reasoning(" two")]
    assert reader.feed("nk>\n\nthree") == [Content("three")]
    assert reader.feed(" four") == [Content(" four")]
    assert reader.feed(CALL[:-3]) == []
    assert joined(reader.feed(CALL[-3:])) == [F]


@pytest.mark.parametrize("options", [{"thinking": True, "tools": True}, {"tools": True}])
def test_only_so_much_space_waits_for_a_tag(options: dict[str, bool]) -> None:
    reader, space = AnswerReader(**options), " " * MAX_SPACE
    assert reader.feed(space) == []
    assert reader.feed(" <tool") == [Content(f"{space} ")]
    assert reader.finish() == [Content("<tool")]


@pytest.mark.parametrize(
    ("parts", "options", "count"),
    [
        (["<th", "ink>", "a", " b", "</think>", "c", "d"], {"thinking": True}, 5),
        (["<", "th", "ink>", "a", "</think>", "b"], {"thinking": True}, 5),
        (["", "<think>", "never ends"], {"thinking": True}, 3),
        (["<think>a</think>b", "c"], {"thinking": True}, 1),
        (["a", "</th", "ink>b", "c"], {"inside": True}, 3),
        (["<", "b", "</think>"], {"thinking": True}, 0),
        (["<think>", "a", "</think>", "b"], {}, 0),
    ],
)
def test_the_tokens_of_reasoning_are_counted(parts: list[str], options: dict[str, bool], count: int) -> None:
    """An event has a token here."""
    reader = AnswerReader(**options)
    for number, part in enumerate(parts, start=1):
        reader.read(Event(0, part, (number,), finish_reason="stop" if number == len(parts) else None))
    assert reader.reasoning_tokens == count


@pytest.mark.parametrize(
    ("reason", "stop", "said"),
    [("stop", None, [Content("<tool_call>{")]), ("stop", "x", []), ("length", None, [])],
)
def test_a_call_without_its_end_is_content_unless_the_answer_was_cut(
    reason: Any, stop: str | None, said: list[Piece]
) -> None:
    event = Event(0, "<tool_call>{", (1,), finish_reason=reason, stop_string=stop)
    assert AnswerReader(tools=True).read(event) == (said, reason)


def test_an_answer_that_ends_with_its_only_call_was_not_cut() -> None:
    _, reason = AnswerReader(tools=True, one_call=True).read(Event(0, CALL, (1,), finish_reason="length"))
    assert reason == "stop"


def test_a_call_that_is_nested_too_deeply_is_content() -> None:
    text = f"<tool_call>{'[' * 10_000}</tool_call>"
    assert joined(read([text], tools=True)) == [("Content", text)]
