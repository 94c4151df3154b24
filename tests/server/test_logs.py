"""Log lines: one line each, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tiny_llm.server.guard.request_ids import request_id
from tiny_llm.server.logs import JsonFormatter, TextFormatter

TEXT = "a\nb\x1b[31m\u202e\x00é"


def record() -> logging.LogRecord:
    try:
        raise ValueError("x\ny")
    except ValueError:
        return logging.LogRecord("name", logging.ERROR, "path", 1, "%s", (TEXT,), sys.exc_info())


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_has_escapes_and_the_id_of_the_request(formatter: logging.Formatter) -> None:
    token = request_id.set("my-id")
    line = formatter.format(record())
    request_id.reset(token)
    assert line.isprintable()
    assert "my-id" in line
    assert "ValueError" in line


def test_json_keeps_the_text() -> None:
    fields = json.loads(JsonFormatter().format(record()))
    assert fields["message"] == TEXT
    assert fields["level"] == "ERROR"
    assert fields["exception"].endswith("ValueError: x\ny")
    assert fields["request_id"] == "-"
