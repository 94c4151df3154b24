"""The ASGI application in front of the replicas: reads a body, chooses by its prefix, passes the answer on.

What a request may be, its replica decides, with the application of `tiny-llm serve`. Only what must be known
before a body is read is checked here: key, type and size.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import Message, Receive, Scope, Send

from ..server.deadline import Deadline
from ..server.disconnect import Client, watch
from ..server.errors import ApiError, as_api_error, is_anthropic, is_ollama
from ..server.middleware.access import HEADER, send_error
from ..server.middleware.body import EarlyError, RequestMemory, body_of, send_and_linger
from ..server.middleware.callers import KeyGuard
from ..server.settings import Settings
from .exchange import portable
from .metrics import merge
from .prefix import prefix_of

LOG = logging.getLogger(__name__)
ATTEMPTS = 2  # a request that ends its process must not end all of them
METRICS = "/metrics"
RESPONSES = "/v1/responses"


class ReplicaLost(Exception):
    """The process that answered is gone, or its node."""


class Replicas(Protocol):
    """Raises `ReplicaLost`, or an error of the server if no replica may get one more request."""

    def answer(
        self, scope: dict[str, Any], body: bytes, prefix: bytes | None
    ) -> AsyncGenerator[list[Message], None]:
        """Of one replica. Closing the iterator ends the request there."""
        ...

    async def answers(self, scope: dict[str, Any]) -> dict[str, list[Message]]:
        """Of every replica, by its name."""
        ...


class Gateway:
    def __init__(self, replicas: Replicas, settings: Settings):
        self._replicas = replicas
        self._settings = settings
        self._memory = RequestMemory(settings.request_memory)
        self._post = KeyGuard(self._read_and_pass, settings.api_keys, frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            if scope["method"] == "POST":
                await self._post(scope, receive, send)
            elif scope["path"] == METRICS:
                await self._send_metrics(scope, send)
            else:
                await self._pass(scope, receive, send, b"")
        except EarlyError as error:
            await send_and_linger(error.with_traceback(None), scope, receive, send)
        except Exception as error:
            await send_error(scope, send, self._told(error))

    async def _read_and_pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, deadline = Client(), Deadline(self._settings.request_timeout)
        async with body_of(scope, receive, self._settings, self._memory, client, deadline) as body:
            await self._pass(scope, receive, send, bytes(body.content))  # which may be needed again

    async def _pass(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """From a replica, or from another one if it is lost before the client has got anything."""
        answer, client = Relay(scope["path"], send), Client()
        lost = ApiError(503, "the replica that answered has stopped", code="engine_failed")
        with watch(receive, client):
            for _ in range(ATTEMPTS):
                try:
                    await client.wait_for(self._pass_once(scope, body, answer))
                    return
                except ReplicaLost:
                    LOG.warning("a replica was lost while it answered")
                    error = lost
                except Exception as failure:
                    error = self._told(failure)
                if error is not lost or answer.begun:
                    break
        if client.gone or answer.ended:
            return
        if answer.begun:
            await answer.fail(error)
        else:
            await send_error(scope, send, error)

    def _told(self, failure: Exception) -> ApiError:
        error = as_api_error(failure)
        if error.status == 500:
            LOG.error("a request failed", exc_info=failure)
        return error

    async def _pass_once(self, scope: Scope, body: bytes, answer: "Relay") -> None:
        async with aclosing(self._replicas.answer(portable(scope), body, prefix_of(body))) as lists:
            async for messages in lists:
                for message in messages:
                    await answer.send(message)

    async def _send_metrics(self, scope: Scope, send: Send) -> None:
        """The answer of one if it is another than 200: each asks for the key."""
        answers = await self._replicas.answers(portable(scope))
        pages = {}
        for name, (start, *rest) in answers.items():
            if start["status"] != 200:
                for message in (start, *rest):
                    await send(message)
                return
            pages[name] = b"".join(message["body"] for message in rest).decode()
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": merge(pages)})


class Relay:
    """Sends an answer. Its head waits for the first part of the body: until then it can be another one's."""

    def __init__(self, path: str, send: Send):
        self._path = path
        self._send = send
        self._head: Message | None = None
        self.begun = self.ended = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [header for header in message["headers"] if header[0] != HEADER]  # Ray adds one
            self._head = {**message, "headers": headers}
            return
        if self._head is not None and not self.begun:
            self.begun = True
            await self._send(self._head)
        self.ended = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        """End a stream as the server ends one."""
        await self._send({"type": "http.response.body", "body": last_event(self._path, error)})


def last_event(path: str, error: ApiError) -> bytes:
    if is_ollama(path):
        return error.encode(path) + b"\n"
    named = b"event: error\n" if is_anthropic(path) or path == RESPONSES else b""
    return named + b"data: " + error.encode(path) + b"\n\n"
