"""Clients that ask, one request after another, until the time is over; each request has one outcome."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.server.sockets.test_bad_input import ROWS

from .connection import Connection, Lost, post, records
from .questions import ROUTES, Question, Route

LONG = 200  # tokens of an answer that its client does not wait for
LARGEST_BAD = 100_000  # bytes; larger requests test the limits, and take their time
ENDS = ("stop", "length")


@dataclass
class Outcomes:
    """What happened to all requests.

    counts: by kind of request and outcome, as "good/right". first_tokens: seconds to the first text of good
    streams. awaited: ids of requests whose clients read everything; left: of those whose clients left.
    """

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    sent: int = 0

    def wrong(self, kind: str, outcome: str, about: object) -> None:
        self.counts[f"{kind}/{outcome}"] += 1
        if len(self.problems) < 20:
            self.problems.append(f"{kind}: {outcome}: {about!r:.600}")


class Client:
    """One of many; `number` makes its choices its own."""

    def __init__(self, port: int, questions: list[Question], outcomes: Outcomes, number: int, seed: int):
        self._port = port
        self._questions = questions
        self._outcomes = outcomes
        self._number = number
        self._random = random.Random(f"{seed} {number}")
        self._asked = 0

    async def run(self, until: float) -> None:
        kinds: dict[str, tuple[int, Callable[[str], Awaitable[str]]]] = {
            "good": (35, self._whole),
            "stream": (35, self._stream),
            "slow": (4, self._slow),
            "schema": (4, self._schema),
            "cancel": (6, self._cancel),
            "disconnect": (6, self._disconnect),
            "bad": (10, self._bad),
        }
        weights = [weight for weight, _ in kinds.values()]
        while time.monotonic() < until:
            (kind,) = self._random.choices(list(kinds), weights)
            self._outcomes.sent += 1
            try:
                outcome = await kinds[kind][1](f"soak-{self._number}-{self._asked}")
            except Lost as lost:
                self._outcomes.wrong(kind, "lost", lost)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                self._outcomes.wrong(kind, "malformed", error)
            else:
                self._outcomes.counts[f"{kind}/{outcome}"] += 1
            self._asked += 1

    async def _whole(self, name: str) -> str:
        question, route = self._question()
        async with self._post(route, question.fields(route), name) as connection:
            head = await connection.head()
            answer = json.loads(await connection.whole(head))
        if head.status != 200:
            return self._refused("good", head.status, answer)
        return self._compared("good", question, route, route.whole(answer))

    async def _stream(self, name: str, pause: float = 0.0) -> str:
        question, route = self._question()
        fields = {**question.fields(route), "stream": True}
        kind = "slow" if pause else "stream"
        async with self._post(route, fields, name, slow=pause > 0) as connection:
            head = await connection.head()
            if head.status != 200:
                return self._refused(kind, head.status, await connection.whole(head))
            text, is_complete, first = "", False, None
            async for record in records(connection):
                await asyncio.sleep(pause)
                if record is not None and "error" in record and record["error"]:
                    self._outcomes.wrong(kind, "error", record)
                    return "with error"
                is_complete |= route.is_end(record)
                piece = "" if record is None else route.piece(record)
                if piece and first is None:
                    first = time.monotonic() - connection.sent_at
                text += piece
        if not is_complete:
            self._outcomes.wrong(kind, "without end", text)
            return "broken"
        if not pause and first is not None:
            self._outcomes.first_tokens.append(first)
        return self._compared(kind, question, route, text)

    async def _slow(self, name: str) -> str:
        return await self._stream(name, pause=0.05)

    async def _schema(self, name: str) -> str:
        """An answer that must follow a schema."""
        colours = ["red", "green", "blue"]
        schema = {"type": "object", "properties": {"colour": {"enum": colours}}, "required": ["colour"],
                  "additionalProperties": False}  # fmt: skip
        fields = {
            "messages": [{"role": "user", "content": "Name a colour."}],
            "max_tokens": 40,
            "temperature": 1.0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
        }
        async with self._post(ROUTES["chat"], fields, name) as connection:
            head = await connection.head()
            answer = json.loads(await connection.whole(head))
        if head.status != 200:
            return self._refused("schema", head.status, answer)
        if json.loads(ROUTES["chat"].whole(answer))["colour"] not in colours:
            self._outcomes.wrong("schema", "wrong", answer)
        return "right"

    async def _cancel(self, name: str) -> str:
        """Leaves in the middle of a stream."""
        question, route = self._question()
        fields = {**question.fields(route), route.limit: LONG, "stream": True}
        wanted = self._random.randrange(1, 12)
        async with self._post(route, fields, name, leaves=True) as connection:
            head = await connection.head()
            if head.status != 200:
                return self._refused("cancel", head.status, await connection.whole(head))
            async for _ in records(connection):
                wanted -= 1
                if wanted == 0:
                    return "left"
        return "ended before"

    async def _disconnect(self, name: str) -> str:
        """Leaves before a whole answer has come."""
        question, route = self._question()
        async with self._post(route, {**question.fields(route), route.limit: LONG}, name, leaves=True):
            await asyncio.sleep(self._random.uniform(0, 0.5))
        return "left"

    async def _bad(self, name: str) -> str:
        label, request, status, _ = self._random.choice(ROWS)
        while len(request) > LARGEST_BAD and self._random.random() < 0.95:
            label, request, status, _ = self._random.choice(ROWS)
        async with Connection(self._port, request) as connection:
            head = await connection.head()
            answer = json.loads(await connection.whole(head))
        if head.status != status or "message" not in answer["error"]:
            self._outcomes.wrong("bad", f"answered {head.status}", (label, answer))
            return "wrong"
        return "refused"

    def _question(self) -> tuple[Question, Route]:
        question = self._random.choice(self._questions)
        fitting = [route for route in ROUTES.values() if route.is_chat == question.is_chat]
        return question, self._random.choice(fitting)

    def _post(
        self, route: Route, fields: dict[str, Any], name: str, slow: bool = False, leaves: bool = False
    ) -> Connection:
        (self._outcomes.left if leaves else self._outcomes.awaited).append(name)
        return Connection(self._port, post(route.path, fields, name), slow)

    def _compared(self, kind: str, question: Question, route: Route, text: str) -> str:
        if text == question.answer:
            return "right"
        self._outcomes.wrong(kind, "wrong", (route.path, question, text))
        return "compared"

    def _refused(self, kind: str, status: int, answer: object) -> str:
        if status not in (429, 503):
            self._outcomes.wrong(kind, f"answered {status}", answer)
        return f"refused with {status}"
