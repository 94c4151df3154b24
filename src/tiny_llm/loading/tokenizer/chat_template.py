"""Chat templates. Those of downloaded models run in a sandboxed process with limits of time and memory."""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checks.types import kind
from ...errors import ArgumentError, ArgumentTypeError
from ..errors import LoadError

MAX_TEXT_CHARS = 2**20  # characters
PROGRAM = Path(__file__).with_name("template_process.py")
MAX_RESPONSE_BYTES = 16 * 2**20  # bytes that are read from the process; a character takes up to 12


class TemplateWorker:
    """A process that renders templates: one request at a time, replaced when it has ended or was stopped.

    It ends together with this process, because it reads requests until its standard input is closed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        atexit.register(self.stop)
        # A child would share the pipes of its parent: requests of both would mix.
        os.register_at_fork(after_in_child=self._after_fork)

    def render(self, request: Mapping[str, Any], seconds: float) -> dict[str, str]:
        """The result of a request; LoadError if there is none in time. Callable from any thread."""
        line = json.dumps({**request, "seconds": seconds}, default=_json_default).encode() + b"\n"
        with self._lock:
            # A process that was killed while idle is replaced. If a new one ends, the template is the cause.
            if self._process is not None:
                written, in_time = self._exchange(self._process, line, seconds)
                if written or not in_time:
                    return self._read(written, in_time, seconds)
            self._process = _start()
            return self._read(*self._exchange(self._process, line, seconds), seconds)

    def stop(self) -> None:
        """End the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()  # closes the pipes and waits

    @property
    def pid(self) -> int | None:
        """The number of the running process; None if there is none."""
        return None if self._process is None else self._process.pid

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes, seconds: float) -> tuple[bytes, bool]:
        """The line written by the process, and whether it came in time. Without a line, it is stopped."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        written = b""
        try:
            process.stdin.write(line)
            process.stdin.flush()
            written = process.stdout.readline(MAX_RESPONSE_BYTES)
        except BrokenPipeError:
            pass
        finally:  # also after Ctrl-C: the next request must not read this one's answer
            in_time = timer.is_alive()
            timer.cancel()
            if not (in_time and written.endswith(b"\n")):
                self.stop()
        return written, in_time

    def _read(self, written: bytes, in_time: bool, seconds: float) -> dict[str, str]:
        try:
            result: dict[str, str] = json.loads(written)
        except ValueError as error:
            reason = "ended without an answer" if in_time else f"took more than {seconds:g} s"
            raise LoadError(f"chat_template: the template {reason} and was stopped") from error
        return result

    def _after_fork(self) -> None:
        self._process = None
        self._lock = threading.Lock()


TEMPLATE_WORKER = TemplateWorker()  # started at the first request


@dataclass(frozen=True)
class ChatTemplate:
    """A jinja2 template, and the special tokens that it may name."""

    source: str
    special_tokens: Mapping[str, str]
    trusted: bool = False  # only for the embedded model
    seconds: float = 10.0  # time limit of one rendering in the process

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """The prompt for a chat of at most `MAX_TEXT_CHARS` characters.

        A template that fails, or takes too much time or memory, is a LoadError.
        """
        length = sum(len(text) for message in messages for text in message.values() if isinstance(text, str))
        if length > MAX_TEXT_CHARS:
            raise ArgumentError(
                "apply_chat_template", "messages", f"{length} characters", f"at most {MAX_TEXT_CHARS}"
            )
        variables = {**self.special_tokens, "messages": list(messages), "tools": None, **options}
        request: dict[str, Any] = {"source": self.source, "variables": variables, "max_chars": MAX_TEXT_CHARS}
        if self.trusted:
            from .template_process import render_request  # jinja2 is slow to import

            result = render_request(**request)
        else:
            result = TEMPLATE_WORKER.render(request, self.seconds)
        if "error" in result:
            raise LoadError(f"chat_template: {result['error']}")
        return result["text"]


def _json_default(value: object) -> dict[Any, Any]:
    """A dict for a mapping of another class; ArgumentTypeError for any other object."""
    if isinstance(value, Mapping):
        return dict(value)
    expected = "texts, numbers, lists and dictionaries, which can be written as JSON"
    raise ArgumentTypeError("apply_chat_template", "messages", f"{kind(value)} inside", expected)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
