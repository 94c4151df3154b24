"""Messages of an answer, in lists: those that are ready at once, or that come within a pause."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from tiny_llm.deploy.exchange import exchange

TOKENS = 6


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """A head, and a token at each turn of the loop."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(TOKENS):
        for _ in range(3):
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})


def lists(pause: float) -> list[list[Message]]:
    async def collect() -> list[list[Message]]:
        scope: dict[str, Any] = {"type": "http"}
        return [messages async for messages in exchange(stream, scope, b"", pause)]

    return asyncio.run(asyncio.wait_for(collect(), 20))


def bodies(found: list[list[Message]]) -> list[bytes]:
    return [message["body"] for messages in found for message in messages if "body" in message]


def test_each_token_comes_as_it_is_made() -> None:
    found = lists(0)
    assert len(found) == 1 + TOKENS
    assert bodies(found) == [b"%d" % number for number in range(TOKENS)]


def test_a_pause_gathers_all_but_the_first_and_ends_with_the_answer() -> None:
    found = lists(1000)
    assert [len(messages) for messages in found] == [1, 1, TOKENS - 1]
    assert bodies(found) == [b"%d" % number for number in range(TOKENS)]
