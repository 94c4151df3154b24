"""The ASGI application in front of the replicas: reads a body, chooses by its prefix, passes the answer on.

What a request may be, its replica decides, with the application of `tiny-llm serve`. Only what must be known
before a body is read is checked here: host, origin, key, type and size.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import Message, Receive, Scope, Send

from ..server.disconnect import Client, watch
from ..server.errors import ApiError, as_api_error, is_anthropic, is_ollama
from ..server.middleware.access import HEADER, send_error
from ..server.middleware.body import EarlyError, HeadGuard, RequestMemory, body_of, send_and_linger
from ..server.middleware.callers import ANY, HostGuard, KeyGuard, OriginGuard
from ..server.settings import Settings
from ..server.waiting import Deadline
from .exchange import portable
from .metrics import merge
from .prefix import prefix_of

LOG = logging.getLogger(__name__)
ATTEMPTS = 2  # a request that ends its process must not end all of them
TAKEN_SECONDS = 30.0  # until a replica has taken a request
METRICS_SECONDS = 3.0  # for each replica
COPIES = 2  # of a body until its answer has ended: ours, for another attempt, and the one that Ray sends
METRICS = "/metrics"
RESPONSES = "/v1/responses"


class ReplicaLost(Exception):
    """The process that answered is gone, or its node."""


class Replicas(Protocol):
    """Raises `ReplicaLost`, or an error of the server if no replica may get one more request."""

    def answer(
        self, scope: dict[str, Any], body: bytes, prefix: bytes | None
    ) -> AsyncGenerator[list[Message], None]:
        """Of one replica. The first list is empty: it comes as soon as the replica has taken the request.

        Closing the iterator ends the request there.
        """
        ...

    def names(self) -> list[str]:
        """Of those that run, as far as is known here."""
        ...

    async def answer_of(self, name: str, scope: dict[str, Any]) -> list[Message]:
        """The whole answer of this replica."""
        ...


def for_replicas(settings: Settings) -> Settings:
    """The settings of replicas behind a gateway, which has checked the host, and names the origin."""
    return replace(settings, allowed_hosts=(ANY,), allowed_origins=())


class Gateway:
    """`taken_seconds`: how long a request waits for a replica, such as one that is being started."""

    def __init__(self, replicas: Replicas, settings: Settings, taken_seconds: float = TAKEN_SECONDS):
        self._replicas = replicas
        self._settings = settings
        self._taken_seconds = taken_seconds
        self._memory = RequestMemory(settings.request_memory)
        self._post = KeyGuard(self._read_and_pass, settings.api_keys, frozenset())
        open_metrics = frozenset({METRICS} if settings.open_metrics else ())
        self._metrics = KeyGuard(self._send_metrics, settings.api_keys, open_metrics)
        shared = OriginGuard(self._answer, settings.allowed_origins)
        self._guarded = HeadGuard(HostGuard(shared, settings.allowed_hosts), settings.max_head)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] == "POST":
                await self._post(scope, receive, send)
            elif scope["path"] == METRICS:
                await self._metrics(scope, receive, send)
            else:
                deadline = Deadline(self._settings.request_timeout)
                await self._pass(scope, receive, send, b"", None, deadline)
        except EarlyError as error:
            await send_and_linger(error.with_traceback(None), scope, receive, send)
        except Exception as error:
            await send_error(scope, send, self._told(error))

    async def _read_and_pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, deadline = Client(), Deadline(self._settings.request_timeout)
        async with body_of(scope, receive, self._settings, self._memory, client, deadline) as read:
            body = bytes(read.content)
            prefix = prefix_of(body)
            # What was held for decoding is free again, also while a long answer is passed on.
            read.content.clear()
            read.share.release()
            read.share.hold(COPIES * len(body))
            await self._pass(scope, receive, send, body, prefix, deadline)

    async def _pass(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body: bytes,
        prefix: bytes | None,
        deadline: Deadline,
    ) -> None:
        """From a replica, or from another one if it is lost before the client has got anything."""
        answer, client = Relay(scope["path"], send), Client()
        lost = ApiError(503, "the replica that answered has stopped", code="engine_failed")
        with watch(receive, client):
            for _ in range(ATTEMPTS):
                try:
                    await client.wait_for(self._pass_once(scope, body, prefix, answer, deadline))
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

    async def _pass_once(
        self, scope: Scope, body: bytes, prefix: bytes | None, answer: "Relay", deadline: Deadline
    ) -> None:
        async with aclosing(self._replicas.answer(portable(scope), body, prefix)) as lists:
            try:
                async with asyncio.timeout(self._taken_seconds):
                    await deadline.limit(anext(lists))
            except TimeoutError as error:
                sentence = f"no replica has taken the request within {self._taken_seconds:g} s"
                raise ApiError(503, sentence, code="engine_failed") from error
            async for messages in lists:
                for message in messages:
                    await answer.send(message)

    async def _send_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Of the replicas that answer in time; the answer of one if it is another than 200."""
        if not (names := self._replicas.names()):
            raise ApiError(503, "no replica is running", code="engine_failed")
        answers = await asyncio.gather(*(self._answer_of(name, portable(scope)) for name in names))
        pages = {}
        for name, messages in zip(names, answers, strict=True):
            if messages and messages[0]["status"] != 200:
                for message in messages:
                    await send(message)
                return
            page = b"".join(message.get("body", b"") for message in messages)
            pages[name] = page.decode() if messages else None
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": merge(pages)})

    async def _answer_of(self, name: str, scope: dict[str, Any]) -> list[Message]:
        """Nothing if the replica is lost, or hangs: the others' samples say more then than an error."""
        try:
            async with asyncio.timeout(METRICS_SECONDS):
                return await self._replicas.answer_of(name, scope)
        except (TimeoutError, ReplicaLost):
            return []


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
