"""CORS: which web pages of other origins may read answers.

A browser asks before it sends JSON: a preflight.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY = "*"
PREFLIGHT_SECONDS = b"600"  # for which a browser remembers the answer
METHODS = b"GET, POST"
# Headers of answers that a page may read, besides those that every page may.
READABLE = b"x-request-id, retry-after, x-should-retry"


class OriginGuard:
    """Names the origin of an allowed page in its answer; also answers its preflight, which has no key.

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
