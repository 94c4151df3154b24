"""Exchanges of each interface, byte by byte, with what the engine gets, as the files in `wire/` have them.

`python -m tests.server.test_wire` writes the files anew; their difference is the change that clients see.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import pytest

from tiny_llm.engine import EngineRequest

from ..support.serving import chat_models
from ..support.serving.exchanges import FILES, STREAMS, Exchanges
from ..support.serving.fake_engine import FakeEngine, embedded_tokenizer
from ..support.serving.running import RunningServer, running

FOLDER = Path(__file__).parent / "wire"
KEY, ORIGIN = "secret", "https://app.example"
HEADERS = {"authorization": f"Bearer {KEY}", "origin": ORIGIN}
TEMPLATE = chat_models.TOOLS + chat_models.MESSAGES + chat_models.THINKING


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with started() as server:
        yield server


@contextmanager
def started() -> Iterator[RunningServer]:
    engine = FakeEngine(tokenizer=chat_models.tokenizer_with(TEMPLATE), cached=3)
    with counted(), running(engine, api_keys=(KEY,), allowed_origins=(ORIGIN,)) as server:
        yield server


@contextmanager
def counted() -> Iterator[None]:
    """Ids are numbers that count, and so is each look at the clock that durations are measured with."""
    ids, ticks = itertools.count(1), itertools.count(1000, 1000)
    with (
        patch.object(secrets, "token_hex", lambda size: f"{next(ids):0{size}x}"),
        patch.object(time, "time", lambda: 1_700_000_000.25),
        patch.object(time, "perf_counter_ns", lambda: next(ticks)),
    ):
        yield


def written(server: RunningServer, exchanges: Exchanges) -> str:
    """Requests, what the engine got, and answers; what can be a stream is asked for whole and as a stream."""
    parts = []
    for path, body, engine in exchanges:
        bodies = [{**body, "stream": stream} for stream in (False, True)] if path in STREAMS else [body]
        if path.endswith("completions"):
            bodies[1]["stream_options"] = {"include_usage": True}
        for each in bodies:
            server.engine.requests.clear()
            with counted(), patch.multiple(server.engine, **{"script": None, "failure": None, **engine}):
                answer = server.request("GET" if each is None else "POST", path, each, HEADERS)
            headers = [f"{name}: {value}" for name, value in sorted(answer.headers.items()) if name != "date"]
            request = path if each is None else f"{path} {json.dumps(each)}"
            got = map(given, server.engine.requests) if each is bodies[0] else ()
            said = answer.body.decode().rstrip()
            parts.append("\n".join([request, *got, str(answer.status), *headers, "", said]))
    return "\n\n\n".join(parts) + "\n"


def given(request: EngineRequest) -> str:
    """Its prompt, and what differs from the defaults."""
    prompt = embedded_tokenizer().decode(request.prompt_ids)
    values = {
        field: getattr(record, field.name)
        for record in (request, request.sampling)
        for field in fields(record)
    }
    changed = [
        f"{field.name}={value!r}"
        for field, value in values.items()
        if value not in (field.default, request.sampling, request.prompt_ids)
    ]
    return f"{prompt!r} {' '.join(changed)}"


def schemas(server: RunningServer) -> str:
    """A line for each field of a request or an answer, as the OpenAPI document has it."""
    document = server.request("GET", "/openapi.json", headers=HEADERS).record
    lines = []
    for name, schema in document["components"]["schemas"].items():
        for place, value in {**schema.pop("properties", {}), "": schema}.items():
            lines.append(f"{name}.{place} {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def all_files(server: RunningServer) -> Iterator[tuple[Path, str]]:
    yield FOLDER / "schemas.txt", schemas(server)
    for name, exchanges in FILES.items():
        yield FOLDER / f"{name}.txt", written(server, exchanges)


def test_what_goes_over_the_wire_is_as_written(server: RunningServer) -> None:
    for path, text in all_files(server):
        assert text.splitlines() == path.read_text().splitlines()


if __name__ == "__main__":
    with started() as server_of_all:
        for file, text in all_files(server_of_all):
            file.write_text(text)
