"""HTTP connections of uvicorn with our errors, time limits, and a limit of their number.

asyncio accepts as many at once as may wait, and if descriptors run out, it logs a traceback for each of them:
`accept` takes one after another.
"""

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import ApiError
from .middleware.access import HEADER, new_request_id
from .settings import Settings

LOG = logging.getLogger(__name__)
MOST_DESCRIPTORS = 2**16  # some systems have no limit, or one that is too large to be set
RESERVED = 128  # descriptors that are no connections: models, logs, processes, the event loop
PAUSE = 1.0  # seconds, while there is no descriptor
LOG_SECONDS = 60.0


def raise_descriptor_limit() -> None:
    """As far as this process may."""
    try:
        import resource
    except ImportError:  # not every system has it
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections_within(most: int) -> int:
    """How many of this number of connections the limit of descriptors allows, at least one."""
    try:
        import resource
    except ImportError:
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft - RESERVED >= most:
        return most
    allowed = max(soft - RESERVED, 1)
    LOG.warning("the limit of open files, %d, allows %d connections instead of %d", soft, allowed, most)
    return allowed


async def accept(listener: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
    """Accept one connection after another, until cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    logged_at = -LOG_SECONDS
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(new_protocol, connection)
        except ConnectionError:  # the client has gone
            continue
        except OSError as error:
            if time.monotonic() >= logged_at + LOG_SECONDS:
                logged_at = time.monotonic()
                LOG.warning("no connection can be accepted: %s", error.strerror)
            await asyncio.sleep(PAUSE)


def connection_class(settings: Settings, on_error: Callable[[ApiError], None]) -> type[H11Protocol]:
    """uvicorn's Config takes a class, so what all connections share is part of it.

    `on_error` gets the errors that are sent without the application.
    """
    return type("HttpConnection", (Connection,), {"settings": settings, "on_error": staticmethod(on_error)})


class Connection(H11Protocol):
    settings: Settings
    on_error: Callable[[ApiError], None]
    _deadline: asyncio.TimerHandle | None = None  # for the rest of a request, or of a body nobody reads
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """At the limit, the connection that has been idle for the longest time makes room."""
        super().connection_made(transport)
        self._idle_since = time.monotonic()
        self._arm()
        if len(self.connections) > self.settings.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_idle:
            self._disarm()
        elif self._deadline is None and not self.transport.is_closing():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP; h11's error is being handled now, and it may suggest a status."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        code = "header_too_large" if status == 431 else "invalid_http"
        sentence = "the header is too large" if status == 431 else "the request is not valid HTTP"
        self._refuse(ApiError(status, sentence, code=code))

    def on_response_complete(self) -> None:
        self._idle_since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read: it has a limited time to catch up."""
        super().pause_writing()
        self._write_deadline = self.loop.call_later(self.settings.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _make_room(self) -> None:
        """Close the longest idle of the open connections, if these are too many. It may be this one."""
        connections = [each for each in self.connections if isinstance(each, Connection)]
        open_ones = [each for each in connections if not each.transport.is_closing()]
        if len(open_ones) <= self.settings.max_connections:
            return
        oldest = min((each for each in open_ones if each._is_idle), key=lambda each: each._idle_since)
        if oldest is self:
            self._refuse(ApiError(503, "too many connections", code="too_many_connections"))
        else:
            oldest.transport.abort()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self.settings.head_timeout, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        """No request has begun in time, or the rest of an answered one does not end."""
        self._deadline = None
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(ApiError(408, "the header did not arrive in time", code="request_timeout"))
        else:
            self.transport.abort()

    def _refuse(self, error: ApiError) -> None:
        """Send an error and close, if the state of the connection allows one."""
        self.on_error(error)
        answer = error.response()
        headers = [*answer.raw_headers, (b"connection", b"close"), (HEADER, new_request_id().encode())]
        reason = HTTPStatus(error.status).phrase.encode()
        try:
            for event in (h11.Response(status_code=error.status, headers=headers, reason=reason),
                          h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):  # fmt: skip
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # an answer has begun
            pass
        self.transport.close()
