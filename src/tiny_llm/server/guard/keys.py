"""The bearer key, for every path but a few. The path is the one that is routed, never one from a header."""

import hmac
from collections.abc import Collection, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ApiError
from .respond import send_error

OPEN = frozenset({"/health", "/ready"})
SCHEME = b"bearer "


class KeyGuard:
    """Without keys, everything passes."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], open_paths: Collection[str] = OPEN):
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._open_paths or self._is_known(scope["headers"]):
            await self._app(scope, receive, send)
            return
        sentence = "the key is missing or wrong: send the header Authorization: Bearer KEY"
        headers = (("www-authenticate", "Bearer"),)
        await send_error(scope, send, ApiError(401, sentence, code="invalid_api_key", headers=headers))

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
