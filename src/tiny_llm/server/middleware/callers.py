"""Who may ask: the bearer key, known names in Host, and web pages of allowed origins."""

import hmac
from collections.abc import Collection, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ApiError
from .access import Guard

OPEN = frozenset({"/health", "/ready"})
SCHEME = b"bearer "
ANY = "*"  # every host, or every origin
PREFLIGHT_SECONDS = b"600"  # for which a browser remembers the answer
METHODS = b"GET, POST"
# Headers of answers that a page may read, besides those that every page may.
READABLE = b"x-request-id, retry-after, x-should-retry"


class KeyGuard(Guard):
    """Asks for the bearer key, but for a few paths. Without keys, everything passes.

    The path is the one that is routed, never one from a header.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], open_paths: Collection[str] = OPEN):
        super().__init__(app)
        self._keys = [key.encode() for key in keys]
        self._open_paths = open_paths

    def refusal(self, scope: Scope) -> ApiError | None:
        if scope["path"] in self._open_paths or self._is_known(scope["headers"]):
            return None
        sentence = "the key is missing or wrong: send the header Authorization: Bearer KEY"
        return ApiError(401, sentence, code="invalid_api_key", headers=(("www-authenticate", "Bearer"),))

    def _is_known(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Compares with every key, in a time that does not depend on how much of one is right."""
        if not self._keys:
            return True
        given = b""
        for name, value in headers:
            if name == b"authorization" and value[: len(SCHEME)].lower() == SCHEME:
                given = value[len(SCHEME) :].strip()
            elif name == b"x-api-key":  # of Anthropic's clients
                given = value
        known = [hmac.compare_digest(given, key) for key in self._keys]
        return any(known)


class HostGuard(Guard):
    """Only known names in the header Host: a page of another site, whose name points here, gets no answer."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]):
        super().__init__(app)
        self._allowed = {name.lower() for name in allowed}

    def refusal(self, scope: Scope) -> ApiError | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        known = len(hosts) == 1 and host_name(hosts[0].decode("latin-1")) in self._allowed
        if known or ANY in self._allowed:
            return None
        sentence = "the header Host names a host that is not allowed; `--allowed-host NAME` allows it"
        return ApiError(403, sentence, code="host_not_allowed")


def host_name(host: str) -> str:
    """Without the port; an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


class OriginGuard:
    """CORS: names the origin of an allowed page in its answer; also answers its preflight, which has no key.

    A browser asks before it sends JSON: a preflight.

    Requests of other pages get no header of CORS, so that the browser keeps the answer from them.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]):
        self._app = app
        self._allowed = {origin.lower() for origin in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._allowed:
            await self._app(scope, receive, send)
            return
        given = {name: value for name, value in scope["headers"] if name.startswith((b"origin", b"access-"))}
        headers = [(b"vary", b"origin"), *self._allowance(given.get(b"origin"))]
        wanted = given.get(b"access-control-request-method")
        if scope["method"] == "OPTIONS" and wanted is not None and len(headers) > 1:
            asked = given.get(b"access-control-request-headers", b"")
            headers += [
                (b"access-control-allow-methods", METHODS),
                (b"access-control-allow-headers", asked),  # SDKs send many of their own
                (b"access-control-max-age", PREFLIGHT_SECONDS),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *headers]}
            await send(message)

        await self._app(scope, receive, send_shared)

    def _allowance(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if origin is None or not self._allowed & {ANY, origin.decode("latin-1").lower()}:
            return []
        return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", READABLE)]
