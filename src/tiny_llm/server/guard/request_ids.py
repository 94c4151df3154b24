"""Every request has an id: in its answer's header x-request-id, and in each log line about it."""

import re
import secrets
from contextvars import ContextVar

HEADER = b"x-request-id"
SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
request_id: ContextVar[str] = ContextVar("request_id", default="-")


def choose_id(headers: list[tuple[bytes, bytes]]) -> str:
    """The client's id if it is harmless in logs and headers, else a new one."""
    for name, value in headers:
        if name == HEADER and SANE.fullmatch(value):
            return value.decode()
    return new_request_id()


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"
