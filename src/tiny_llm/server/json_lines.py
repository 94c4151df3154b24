"""Streams whose events are lines of JSON, as Ollama's clients read them."""

from starlette.types import Message, Send

from .sse import COMMENT, HEADERS

KIND = b"content-type"
LINES = [(KIND, b"application/x-ndjson"), *(header for header in HEADERS if header[0] != KIND)]
SPACE = b" "  # before the next line: JSON allows it, and nothing else


def as_lines(send: Send) -> Send:
    """Sends an event stream whose chunks are lines: with the head of lines, and space instead of comments."""

    async def send_lines(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": LINES}
        elif message.get("body") == COMMENT:
            message = {**message, "body": SPACE}
        await send(message)

    return send_lines
