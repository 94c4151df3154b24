"""Runs the application until a signal: the first lets requests finish, the second ends the process."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn

from ..runtime.memory import return_freed_memory
from .app import create_app
from .connection import accept, connection_class, connections_within, raise_descriptor_limit
from .lifecycle import Lifecycle
from .models import EngineProtocol
from .settings import Settings

LOG = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
IDLE_SECONDS = 30  # that a connection may rest between two requests
BACKLOG = 512
TICK = 0.1  # seconds; `on_tick` counts them
REST = 10  # ticks from one look of a server that does not drain to the next
TICKS_OF_A_MINUTE = 600


class Server(uvicorn.Server):
    """uvicorn's server with a drain: it listens until all requests are answered, and refuses new ones.

    Those that are not answered in time are cut: they get an error.
    """

    def __init__(
        self,
        engines: Mapping[str, EngineProtocol],
        settings: Settings,
        *,
        on_start: Callable[[], None] = lambda: None,
    ):
        self._engines = engines
        self._on_start = on_start  # called when connections are accepted
        self.lifecycle = Lifecycle()
        self._drain_timeout = settings.drain_timeout
        self._drain_logged = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain_begins = asyncio.Event()
        raise_descriptor_limit()
        settings = replace(settings, max_connections=connections_within(settings.max_connections))
        app = create_app(engines, settings, self.lifecycle)
        self._connection = connection_class(settings, app.on_error)
        config = uvicorn.Config(
            app,
            http=self._connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=2,  # the drain is over; who was cut gets an error
            h11_max_incomplete_event_size=settings.max_head,
        )
        super().__init__(config)

    def stop(self) -> None:
        """Begin to drain. Callable from a signal handler and from any thread."""
        self.lifecycle.drain(self._drain_timeout)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the server with it
                self._loop.call_soon_threadsafe(self._drain_begins.set)

    async def main_loop(self) -> None:
        """As uvicorn's, but until a drain begins it looks once a second whether to stop: rest is free."""
        self._loop = asyncio.get_running_loop()
        tick = 0
        while not await self.on_tick(tick):
            if self.lifecycle.draining:
                tick += 1
                await asyncio.sleep(TICK)
            else:
                tick += REST
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._drain_begins.wait(), REST * TICK)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._accepting = [asyncio.create_task(accept(each, self._new_connection)) for each in sockets or []]
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self._accepting:
            each.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    def _new_connection(self) -> asyncio.Protocol:
        return self._connection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop, asked by `main_loop`."""
        self._log_drain()
        if counter % TICKS_OF_A_MINUTE == 0:
            asyncio.get_running_loop().run_in_executor(None, return_freed_memory)
        if self.lifecycle.over and not self.should_exit:
            self.lifecycle.cut()
            self.should_exit = True
        if self.engine_failed:  # whoever started this server has to start another one
            self.should_exit = True
        return await super().on_tick(counter)

    def _log_drain(self) -> None:
        """Say once that a drain begins, and once how it ends. A signal handler must not log itself."""
        lifecycle = self.lifecycle
        if lifecycle.draining and not self._drain_logged:
            self._drain_logged = True
            LOG.info(
                "shutting down: no new requests; in flight: %d, with %g s to be answered; "
                "another signal ends the server at once",
                lifecycle.in_flight,
                self._drain_timeout,
            )
        if lifecycle.over and not self.should_exit:
            if lifecycle.in_flight:
                sentence = "shutting down: not answered within %g s, and cut: %d"
                LOG.warning(sentence, self._drain_timeout, lifecycle.in_flight)
            else:
                LOG.info("shutting down: all requests have been answered")

    @property
    def engine_failed(self) -> bool:
        """Whether an engine has stopped after a fault."""
        return any(engine.failed for engine in self._engines.values())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.lifecycle.draining:
            os._exit(128 + sig)  # as shells count; threads in a step would delay every other end
        self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal is not raised again after the drain: the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; OSError if it is in use.

    Loading a model is slow, so this comes before. Several sockets may be bound to one address until one
    listens, so this one does at once; clients that come before the models are loaded wait.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def address_of(bound: socket.socket) -> str:
    """The base of URLs of this server, as a client on this machine writes it."""
    host, port, *_ = bound.getsockname()
    everywhere: dict[Any, str] = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    name = everywhere.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"
