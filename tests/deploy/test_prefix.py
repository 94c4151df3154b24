"""Requests of one conversation have one prefix, in every interface; others have others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tiny_llm.deploy.prefix import FIRST_CHARS, prefix_of


def prefix(**fields: Any) -> bytes | None:
    return prefix_of(json.dumps(fields).encode())


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


FIRST = [said("system", "Be short."), said("user", "Who?")]
LATER = [*FIRST, said("assistant", "I."), said("user", "Why?")]


@pytest.mark.parametrize("field", ["messages", "input"])
def test_a_conversation_keeps_its_prefix(field):
    assert prefix(**{field: FIRST}) == prefix(**{field: LATER}) is not None


@pytest.mark.parametrize("field", ["messages", "input"])
def test_other_first_questions_are_other_conversations(field):
    other = [FIRST[0], said("user", "What?")]
    assert prefix(**{field: FIRST}) != prefix(**{field: other})


@pytest.mark.parametrize("field", ["model", "cache_salt", "system", "instructions", "tools"])
def test_what_comes_before_the_messages_counts(field):
    assert prefix(messages=FIRST, **{field: "a"}) != prefix(messages=FIRST, **{field: "b"})


def test_fields_of_the_answer_do_not_count():
    assert prefix(messages=FIRST, stream=True, max_tokens=3) == prefix(messages=FIRST, temperature=0.5)


@pytest.mark.parametrize("field", ["prompt", "input"])
def test_a_long_text_is_known_by_its_beginning(field):
    long = "a" * FIRST_CHARS
    assert prefix(**{field: long + "b"}) == prefix(**{field: long + "c"}) is not None
    assert prefix(**{field: "b" + long}) != prefix(**{field: "c" + long})


def test_token_ids_are_a_prompt():
    assert prefix(prompt=[1, 2, 3]) not in (None, prefix(prompt=[1, 2, 4]))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"messages": 3}', b'{"messages": [3]}', b'{"messages": []}', b"\xff", b"{}"]
)
def test_what_is_no_request_has_no_prefix(body):
    assert prefix_of(body) is None
