"""The head of a request within its limit, and its body within limits of type, size and time."""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..disconnect import Client
from ..errors import RETRY, ApiError, is_ollama
from ..settings import Settings
from ..waiting import Deadline
from .access import Guard, send_error

LENGTHS = {b"content-length", b"transfer-encoding"}
CLOSE = (("connection", "close"),)
LINGER_SECONDS = 1.0
AGAIN_SECONDS = 0.02
STRING, VALUE, LIST, OBJECT = 80, 80, 100, 280  # bytes of each, the last two with a first value


class HeadGuard(Guard):
    """The size of a head, and one length of its body. uvicorn limits only a head in several parts."""

    def __init__(self, app: ASGIApp, limit: int):
        super().__init__(app)
        self._limit = limit  # bytes

    def refusal(self, scope: Scope) -> ApiError | None:
        if head_size(scope) > self._limit:
            sentence = f"the header is too large: expected at most {self._limit} bytes"
            return ApiError(431, sentence, code="header_too_large")
        if {name for name, _ in scope["headers"]} >= LENGTHS:
            # A proxy may believe the other one, and take a part of this body for the next request.
            sentence = "expected Content-Length or Transfer-Encoding, not both"
            return ApiError(400, sentence, code="invalid_http", headers=CLOSE)
        return None


def head_size(scope: Scope) -> int:
    """In bytes, without separators."""
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])


class EarlyError(ApiError):
    """An answer before the end of the body."""


@dataclass(slots=True)
class RequestMemory:
    """The bytes of all requests: bodies and what they are decoded to, then answers and grammars."""

    limit: int
    held: int = 0

    def hold(self, size: int) -> None:
        """503 if there is no memory for this now, 413 if there never is."""
        if size > self.limit:
            raise ApiError(413, "the request takes more memory than all may take", code="body_too_large")
        if self.held + size > self.limit:
            sentence = "other requests take all the memory for requests, try again later"
            raise ApiError(503, sentence, code="request_memory_full")
        self.held += size


class Share:
    """What one request takes of it."""

    def __init__(self, memory: RequestMemory):
        self._memory = memory
        self.held = 0

    def hold(self, size: int) -> None:
        """As `RequestMemory.hold`."""
        self._memory.hold(size)
        self.held += size

    def grow(self, size: int) -> None:
        """Hold more in any case: what is begun goes on, and new requests find less room."""
        self._memory.held += size
        self.held += size

    def release(self) -> None:
        self._memory.held -= self.held
        self.held = 0


@dataclass(slots=True)
class Body:
    """The bytes of one request, what they were decoded to, and its share of the memory."""

    share: Share
    content: bytearray = field(default_factory=bytearray)
    fields: weakref.ref[msgspec.Struct] | None = None

    def release(self) -> None:
        """Now, or when the thread that works with it has ended: its client may have gone."""
        try:
            self.content.clear()
            in_use = self.fields is not None and self.fields() is not None
        except BufferError:  # it is being decoded
            in_use = True
        if in_use:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.release)
        else:
            self.share.release()


@contextlib.asynccontextmanager
async def body_of(
    scope: Scope,
    receive: Receive,
    settings: Settings,
    memory: RequestMemory,
    client: Client,
    deadline: Deadline,
) -> AsyncIterator[Body]:
    """The body, whose bytes are gone at the end of the block, whoever still has them.

    415, 413 or 408 if it is not JSON, too large or too slow. 503 if all requests take too much memory, if the
    client is dropped, or if its request has no time left. A browser sends another site's request only with
    other types than JSON, unless it asked before: Ollama's clients, which may name any type, are no browser.
    """
    headers = Headers(scope=scope)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    may_have_any_type = is_ollama(scope["path"]) and "origin" not in headers  # browsers name the page's
    if kind != "application/json" and not may_have_any_type:
        raise ApiError(
            415, "expected the header Content-Type: application/json", code="unsupported_media_type"
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "expected a body without Content-Encoding", code="unsupported_media_type")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > settings.max_body:
        raise _too_large(settings)
    body = Body(Share(memory))
    try:
        await _read_in_time(receive, body, settings, client, deadline)
        size = decoded_size(body.content)
        if body.share.held + size > memory.limit:
            raise ApiError(413, "the body has too many values", code="body_too_large")
        body.share.hold(size)
        yield body
    finally:
        body.release()


async def _read_in_time(
    receive: Receive, body: Body, settings: Settings, client: Client, deadline: Deadline
) -> None:
    seconds = settings.body_timeout
    try:
        async with asyncio.timeout(seconds):
            await deadline.limit(client.wait_for(_read(receive, body, settings)))
    except TimeoutError as error:
        sentence = f"the body did not arrive within {seconds:g} s"
        raise ApiError(408, sentence, code="request_timeout", headers=CLOSE) from error
    except ApiError as error:
        if error.status != 503:
            raise
        retry = RETRY in error.headers
        raise EarlyError(503, error.message, code=error.code, headers=CLOSE, retry=retry) from error


async def _read(receive: Receive, body: Body, settings: Settings) -> None:
    content = body.content
    while (message := await receive())["type"] == "http.request":
        chunk = message.get("body", b"")
        if len(content) + len(chunk) > settings.max_body:
            raise _too_large(settings)
        body.share.hold(len(chunk))
        content += chunk
        if not message.get("more_body"):
            return
    sentence = "the client closed the connection before the end of the body"
    raise ApiError(400, sentence, code="client_closed")


def decoded_size(content: bytearray) -> int:
    """About the memory, in bytes, of the objects that JSON is decoded to, and not less.

    A value comes before a comma, or is the last of its object or list. A character takes four bytes if one in
    its text does.
    """
    text = STRING + len(content) * (1 if content.isascii() else 4)
    return text + VALUE * content.count(b",") + LIST * content.count(b"[") + OBJECT * content.count(b"{")


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
