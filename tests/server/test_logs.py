"""Log lines: one a request, and one line each, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

import pytest

from tiny_llm.server.logs import JsonFormatter, TextFormatter
from tiny_llm.server.middleware.access import Access, request_id

from ..support.asgi import Sent, receives
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import running, wait_until
from ..support.virtual_time import at_once

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


def test_a_request_has_one_line_in_the_log_with_its_id(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the lines of threads that work for it have its id."""
    seen, engine = [], FakeEngine()
    submit = engine.submit

    def note(request: Any) -> Any:
        seen.append(request_id.get())
        return submit(request)

    monkeypatch.setattr(engine, "submit", note)
    body = {"prompt": "a", "max_tokens": 1}
    with caplog.at_level(logging.INFO, "tiny_llm.server"), running(engine, inline_body=10) as server:
        for own in ("first", "second"):
            answer = server.request("POST", "/v1/completions", body, {"x-request-id": own})
            assert answer.status == 200
        for quiet in ("/health", "/ready", "/metrics", "/page/main.js"):
            assert server.get(quiet).status == 200
        known = server.get("/page/main.js").headers["etag"]
        assert server.get("/page/main.js", if_none_match=known).status == 304
        assert server.get("/page/none.js").status == 404
        engine.healthy = False
        assert server.get("/health").status == 503
        engine.healthy = True
        wait_until(lambda: len(caplog.records) >= 4)
        records = list(caplog.records)
    assert seen == ["first", "second"]
    lines = [record.getMessage().partition(" in ")[0] for record in records]
    expected = ["POST /v1/completions 200"] * 2
    assert lines == [*expected, "GET /page/none.js 404", "GET /health 503"]


def test_the_time_of_a_line_is_that_of_greenwich(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record()
    made.created, made.msecs = 0.007, 7.0
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    line = TextFormatter().format(made)
    monkeypatch.undo()
    time.tzset()
    assert line.startswith("1970-01-01T00:00:00.007Z ERROR [-] ")


@at_once
async def test_a_fault_of_a_guard_is_logged_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("a fault")

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with caplog.at_level(logging.INFO, "tiny_llm.server"):
        await Access(fail, lambda error: None)(scope, receives(), Sent())
    failed, line = caplog.records
    assert isinstance(failed.exc_info[1], ValueError)
    assert line.getMessage().startswith("GET / 0 in ")
    assert request_id.get() == "-"
