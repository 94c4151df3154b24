"""The outermost layer: gives a request its id, logs one line, counts its error, survives its failure."""

import logging
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ApiError
from ..page.files import PREFIX

HEADER = b"x-request-id"
SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
request_id: ContextVar[str] = ContextVar("request_id", default="-")
ERROR_KEY = "tiny_llm.error"  # where the scope of a request has the error that it got
LOG = logging.getLogger(__name__)
QUIET = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds
SECURITY = [(b"x-content-type-options", b"nosniff")]


def choose_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's id if it is harmless in logs and headers, else a new one."""
    for name, value in headers:
        if name == HEADER and SANE.fullmatch(value):
            return value.decode()
    return new_request_id()


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


async def send_error(scope: Scope, send: Send, error: ApiError) -> None:
    """Outside of the routes. The error is noted for the metrics."""
    scope[ERROR_KEY] = error
    response = error.response(scope["path"])
    head = {"type": "http.response.start", "status": error.status, "headers": response.raw_headers}
    await send(head)
    await send({"type": "http.response.body", "body": response.body})


class Guard(ABC):
    """Middleware that answers a request with the error that `refusal` has for it."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self.refusal(scope)
        if error is None:
            await self._app(scope, receive, send)
        else:
            await send_error(scope, send, error)

    @abstractmethod
    def refusal(self, scope: Scope) -> ApiError | None: ...


class Access:
    """Ids, log lines, errors. `on_error` gets the error that a request was answered with."""

    def __init__(self, app: ASGIApp, on_error: Callable[[ApiError], None]):
        self._app = app
        self.on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        own_id = choose_id(scope["headers"])
        token = request_id.set(own_id)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", []), (HEADER, own_id.encode()), *SECURITY]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # Starlette raises again what it has answered with 500
            if status != 500:
                LOG.error("a request failed", exc_info=error)
        finally:
            if ERROR_KEY in scope:
                self.on_error(scope.pop(ERROR_KEY))  # the connection keeps the scope, the error its cause
            self._log(scope, status, time.perf_counter() - start)
            request_id.reset(token)

    def _log(self, scope: dict[str, Any] | Scope, status: int, seconds: float) -> None:
        path = scope["path"]
        quiet = (path in QUIET or path.startswith(PREFIX)) and status in (200, 304)
        level = logging.DEBUG if quiet else logging.INFO
        LOG.log(level, "%s %.200s %d in %.3f s", scope["method"], path, status, seconds)
