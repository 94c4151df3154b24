"""Sends an error, outside of the routes, and notes it for the metrics."""

from starlette.types import Scope, Send

from ..errors import ApiError

SENT = "tiny_llm.error"  # where the scope of a request has the error that it got


async def send_error(scope: Scope, send: Send, error: ApiError) -> None:
    scope[SENT] = error
    body = error.encode(scope["path"])
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode()) for name, value in error.headers),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
