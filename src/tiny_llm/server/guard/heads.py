"""The size of a request's head. uvicorn limits only one that comes in several parts."""

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ApiError
from .respond import send_error


class HeadGuard:
    def __init__(self, app: ASGIApp, limit: int):
        self._app = app
        self._limit = limit  # bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or head_size(scope) <= self._limit:
            await self._app(scope, receive, send)
            return
        sentence = f"the header is too large: expected at most {self._limit} bytes"
        await send_error(scope, send, ApiError(431, sentence, code="header_too_large"))


def head_size(scope: Scope) -> int:
    """In bytes, without separators."""
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])
