"""Answers the lines of a batch file by the server's application, in this process."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from ...engine import Engine
from ...engine.sizes import MAX_RUNNING
from ...errors import ArgumentError, EngineFailed
from ...loading.progress import Progress
from ...server.app import create_app
from ...server.settings import Settings
from ..backends import EngineBackend
from ..build_backend import build_tiny_llm_backend
from ..exit_codes import Refusal, flag
from ..serve import model_names
from .answers_file import SUCCESS, error_record, record
from .lines import BatchLine, mark

MAX_WINDOW = 2048  # lines that wait or are answered, each of which takes memory
BUSY = (429, 503)  # statuses that other lines may be the reason of
PAUSE = 0.5  # seconds until a line is tried again after those
FLAGS = {"max_running": "batch_size", "max_context": "max_seq_len", "step_tokens": "prefill_step"}


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer of a line, or its error, as `line` of the output."""

    number: int
    end: int
    line: bytes
    failed: bool


def window(options: argparse.Namespace) -> int:
    """How many lines an engine has at a time: as many wait as run, so that no step waits for one."""
    return min(2 * (options.batch_size or MAX_RUNNING), MAX_WINDOW)


def start_engine(options: argparse.Namespace, progress: Progress) -> Engine:
    """The engine of a server with the model and the sizes of these options."""
    backend = build_tiny_llm_backend(options, progress)
    assert isinstance(backend, EngineBackend)  # --loader is refused
    running = options.batch_size or MAX_RUNNING
    sizes: dict[str, Any] = {"max_running": running, "max_context": options.max_seq_len}
    if options.prefill_step is not None:
        sizes["step_tokens"] = running + options.prefill_step
    waiting = window(options) * Settings().max_choices
    try:
        return Engine(backend.llm, max_waiting=waiting, batch_invariant=options.batch_invariant, **sizes)
    except ArgumentError as error:
        raise Refusal(f"{flag(FLAGS.get(error.argument, error.argument))}: {error.reason}") from error


class Application:
    """The server's application for one model. Used in one event loop."""

    def __init__(self, options: argparse.Namespace, engine: Engine):
        self._engine = engine
        self._model = options.model
        self._window = window(options)
        (name,) = model_names([options.model])
        settings = Settings(allowed_hosts=("*",), max_prompts=self._window, max_grammars=self._window)
        self._app = create_app({name: engine}, settings)
        self._asked = 0

    async def answer_all(self, lines: Iterable[BatchLine]) -> AsyncGenerator[BatchAnswer, None]:
        """The answers in the order in which they end. Lines are read as they are needed."""
        waiting = iter(lines)
        running: set[asyncio.Task[BatchAnswer]] = set()
        try:
            while True:
                room = self._window - len(running)
                running |= {asyncio.create_task(self.answer(line)) for line in islice(waiting, room)}
                if not running:
                    return
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()

    async def answer(self, line: BatchLine) -> BatchAnswer:
        """EngineFailed if there can be no more answers."""
        if line.problem:
            written = error_record(line.number, line.custom_id, line.problem)
            return BatchAnswer(line.number, line.end, written, failed=True)
        response = await self._respond(line)
        request = mark(line.url, line.body, self._model)
        written = record(line.number, line.custom_id, response, request)
        return BatchAnswer(line.number, line.end, written, failed=response["status_code"] != SUCCESS)

    async def _respond(self, line: BatchLine) -> dict[str, Any]:
        """While lines that are answered take what this one needs, it waits."""
        while True:
            alone = self._asked == 0
            self._asked += 1
            try:
                response = await self._request(line)
            finally:
                self._asked -= 1
            if self._engine.failed:
                raise EngineFailed
            if alone or response["status_code"] not in BUSY:
                return response
            await asyncio.sleep(PAUSE)

    async def _request(self, line: BatchLine) -> dict[str, Any]:
        """One request by ASGI, and its response as a line of the output has it."""
        messages = iter([{"type": "http.request", "body": line.body, "more_body": False}])
        started: dict[str, Any] = {}
        body = bytearray()

        async def receive() -> dict[str, Any]:
            for message in messages:
                return message
            await asyncio.Event().wait()  # this client never goes
            raise AssertionError

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            body.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": line.url,
            "raw_path": line.url.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await self._app(scope, receive, send)
        return {
            "status_code": started["status"],
            "request_id": dict(started["headers"])[b"x-request-id"].decode(),
            "body": msgspec.Raw(bytes(body)),
        }
