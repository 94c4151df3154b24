"""The exchanges in `wire/` are those of the vendors: their own types accept each answer and each event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

WIRE = Path(__file__).parent.parent / "wire"
TYPES: dict[str, tuple[Any, Any]] = {
    "chat": (ChatCompletion, ChatCompletionChunk),
    "completions": (Completion, Completion),
    "responses": (Response, ResponseStreamEvent),
    "messages": (Message, RawMessageStreamEvent),
}
# The API sends null for what has no value yet; the types of completions, which are older, do not say so.
NULL = {"token_logprobs", "top_logprobs", "finish_reason"}


def answers(name: str) -> Iterator[tuple[bool, str]]:
    """Whether it is an event, and its JSON, of each exchange that succeeded."""
    for exchange in (WIRE / f"{name}.txt").read_text().split("\n\n\n"):
        head, _, body = exchange.partition("\n\n")
        if not re.search(r"^200$", head, re.M):
            continue
        if "content-type: text/event-stream" not in head:
            yield False, body
            continue
        for line in body.splitlines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield True, line.removeprefix("data: ")


def is_failure(text: str) -> bool:
    """An event about a fault, which has no type of its own."""
    fields = json.loads(text)
    return fields.get("error") is not None and fields.get("type", "error") == "error"


def refused(kind: Any, text: str) -> list[tuple[object, ...]]:
    """The places that a type refuses; of a union it is the type that the field `type` names."""
    fields = json.loads(text)
    for each in get_args(get_args(kind)[0]) if get_args(kind) else ():
        if fields["type"] in get_args(each.model_fields["type"].annotation):
            kind = each
    try:
        TypeAdapter(kind).validate_python(fields)
    except ValidationError as error:
        found = [(each["loc"], each["input"]) for each in error.errors()]
        return [place for place, given in found if given is not None or NULL.isdisjoint(place)]
    return []


@pytest.mark.parametrize("name", TYPES)
def test_the_types_of_the_vendor_accept_what_is_sent(name: str) -> None:
    sent = [(is_event, text) for is_event, text in answers(name) if not is_failure(text)]
    assert {is_event for is_event, _ in sent} == {False, True}
    for is_event, text in sent:
        assert refused(TYPES[name][is_event], text) == []
