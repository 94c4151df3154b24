"""Reads a body within limits of type, size and time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from ..deadline import Deadline
from ..disconnect import Client
from ..errors import ApiError
from ..settings import Settings
from .respond import send_error

CLOSE = (("connection", "close"),)
LINGER_SECONDS = 1.0


class EarlyError(ApiError):
    """An answer before the end of the body."""


@dataclass(slots=True)
class Bodies:
    """The bytes of all bodies that are held, until their prompts are made."""

    held: int = 0


@contextlib.asynccontextmanager
async def body_of(
    request: Request, settings: Settings, bodies: Bodies, client: Client, deadline: Deadline
) -> AsyncIterator[bytes]:
    """415, 413 or 408 if it is not JSON, too large or too slow.

    503 if all bodies take too much memory, if the client is dropped, or if its request has no time left.
    A browser sends another site's request only with other types than JSON, unless it asked before.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415, "expected the header Content-Type: application/json", code="unsupported_media_type"
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "expected a body without Content-Encoding", code="unsupported_media_type")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > settings.max_body:
        raise _too_large(settings)
    body = bytearray()
    try:
        await _read_in_time(request, body, settings, bodies, client, deadline)
        yield bytes(body)
    finally:
        bodies.held -= len(body)


async def _read_in_time(
    request: Request, body: bytearray, settings: Settings, bodies: Bodies, client: Client, deadline: Deadline
) -> None:
    try:
        await deadline.limit(client.wait_for(_read(request, body, settings, bodies)))
    except ApiError as error:
        if error.status != 503:
            raise
        raise EarlyError(503, error.message, code=error.code, headers=CLOSE) from error


async def _read(request: Request, body: bytearray, settings: Settings, bodies: Bodies) -> None:
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for chunk in request.stream():
                body += chunk
                bodies.held += len(chunk)
                if len(body) > settings.max_body:
                    raise _too_large(settings)
                if bodies.held > settings.max_bodies:
                    sentence = "other requests take all the memory for bodies, try again later"
                    raise ApiError(503, sentence, code="too_many_bodies")
    except TimeoutError as error:
        sentence = f"the body did not arrive within {settings.body_timeout:g} s"
        raise ApiError(408, sentence, code="request_timeout", headers=CLOSE) from error
    except ClientDisconnect as error:
        sentence = "the client closed the connection before the end of the body"
        raise ApiError(400, sentence, code="client_closed") from error


def _too_large(settings: Settings) -> EarlyError:
    sentence = f"the body is too large: expected at most {settings.max_body} bytes"
    return EarlyError(413, sentence, code="body_too_large", headers=CLOSE)


async def send_and_linger(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an error while a body comes in, and read on for a while.

    Closing at once would reset the connection, and most clients would lose the answer.
    """

    async def send_open(message: Message) -> None:
        await send({**message, "more_body": True} if "body" in message else message)

    await send_error(scope, send_open, error)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})
