"""The head of a request: its size, and one length of its body.

uvicorn limits only a head that comes in several parts.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ApiError
from .respond import send_error

LENGTHS = {b"content-length", b"transfer-encoding"}


class HeadGuard:
    def __init__(self, app: ASGIApp, limit: int):
        self._app = app
        self._limit = limit  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if head_size(scope) > self._limit:
            sentence = f"the header is too large: expected at most {self._limit} bytes"
            await send_error(scope, send, ApiError(431, sentence, code="header_too_large"))
        elif {name for name, _ in scope["headers"]} >= LENGTHS:
            # A proxy may believe the other one, and take a part of this body for the next request.
            sentence = "expected Content-Length or Transfer-Encoding, not both"
            error = ApiError(400, sentence, code="invalid_http", headers=(("connection", "close"),))
            await send_error(scope, send, error)
        else:
            await self._app(scope, receive, send)


def head_size(scope: Scope) -> int:
    """In bytes, without separators."""
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])
