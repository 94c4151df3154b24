"""Log lines as text or JSON: one line each, control characters escaped, the request's id in it."""

import json
import logging
import sys
import time
from typing import Literal

from .middleware.access import request_id

LogFormat = Literal["text", "json"]


def escape(text: str) -> str:
    """Control, bidirectional and other characters that cannot be printed, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} [{request_id.get()}] {escape(record.getMessage())}"
        if record.exc_info:
            line += " " + escape(self.formatException(record.exc_info))
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "request_id": request_id.get(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)  # escapes everything beyond ASCII


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z"


def set_up_logs(log_format: LogFormat) -> None:
    """Lines of this package, and warnings of uvicorn and asyncio, go to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    for name in ("tiny_llm", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO if name == "tiny_llm" else logging.WARNING)
        logger.propagate = False
