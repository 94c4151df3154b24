"""Only known names in the header Host: a page of another site, whose name points here, gets no answer."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ApiError
from .respond import send_error

ANY = "*"


class HostGuard:
    def __init__(self, app: ASGIApp, allowed: Sequence[str]):
        self._app = app
        self._allowed = {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if ANY in self._allowed or self._is_allowed(scope["headers"]):
            await self._app(scope, receive, send)
            return
        sentence = "the header Host names a host that is not allowed; `--allowed-host NAME` allows it"
        await send_error(scope, send, ApiError(403, sentence, code="host_not_allowed"))

    def _is_allowed(self, headers: list[tuple[bytes, bytes]]) -> bool:
        hosts = [value for name, value in headers if name == b"host"]
        return len(hosts) == 1 and host_name(hosts[0].decode("latin-1")) in self._allowed


def host_name(host: str) -> str:
    """Without the port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
