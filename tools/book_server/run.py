"""From a socket to a running server: it says its address, opens a browser, and ends with Ctrl-C."""

import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from tiny_llm_tools.profile.display import has_display

from .app import create_app
from .changes import Changes

HOST = "127.0.0.1"


class Server(uvicorn.Server):
    """uvicorn's server, which waits for open connections at its end: those for changes are closed first."""

    def __init__(self, config: uvicorn.Config, changes: Changes, on_start: Callable[[], None]):
        super().__init__(config)
        self._changes, self._on_start = changes, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._changes.close()
        await super().shutdown(sockets)


def listen(port: int) -> socket.socket:
    """A socket of this machine alone, before the slow build; OSError if the port is in use."""
    return socket.create_server((HOST, port))


def run(
    bound: socket.socket,
    pages: Path,
    *,
    build: Callable[[], object],
    watched: Sequence[Path],
    open_browser: bool,
) -> None:
    """Serve `pages` until Ctrl-C, and `build` them again when a file in `watched` changes."""
    address = f"http://{HOST}:{bound.getsockname()[1]}"

    def on_start() -> None:
        print(f"The book is at {address} (Ctrl-C ends it)", flush=True)
        if open_browser and has_display():
            webbrowser.open(address)

    changes = Changes(watched, build)
    config = uvicorn.Config(
        create_app(pages, changes),
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=2,
    )
    Server(config, changes, on_start).run(sockets=[bound])
