"""The two callables of an ASGI server, without a server."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .virtual_time import now

Message = MutableMapping[str, Any]


class Sent:
    """A `send` that notes each message and its second."""

    def __init__(self, seconds: float = 0.0, broken_after: int | None = None):
        self.messages: list[Message] = []
        self.times: list[float] = []
        self._seconds = seconds  # that it takes to send a part of the body
        self._broken_after = broken_after  # messages

    async def __call__(self, message: Message) -> None:
        if len(self.messages) == self._broken_after:
            raise OSError("the connection is broken")
        self.messages.append(message)
        self.times.append(now())
        if message.get("body"):
            await asyncio.sleep(self._seconds)

    @property
    def bodies(self) -> list[tuple[float, bytes]]:
        """Second and text of each part of the body, without the empty one at its end."""
        found = zip(self.times, self.messages, strict=True)
        return [(at, message["body"]) for at, message in found if message.get("body")]


def receives(*parts: str | float) -> Callable[[], Awaitable[Message]]:
    """A `receive`: strings are types of messages, numbers are seconds before the next one. Then it waits."""
    rest = list(parts)

    async def receive() -> Message:
        while rest and not isinstance(rest[0], str):
            await asyncio.sleep(float(rest.pop(0)))
        if not rest:
            await asyncio.Event().wait()
        return {"type": rest.pop(0)}

    return receive
