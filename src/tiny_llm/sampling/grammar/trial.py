"""Tries grammars out in another process, one at a time, before they are compiled in this one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...runtime.worker_process import WorkerProcess, WorkerStopped, WorkerTooSlow
from .grammar import Grammar

TOKENIZER_SECONDS = 60.0
CROWDED_SECONDS = 1.0  # limit of a grammar while others wait; almost all take less than a tenth of it


class Trials:
    """The grammars of all models, in line for one process, which is started at the first one."""

    def __init__(self, process: WorkerProcess):
        self._process = process
        self._turn = threading.Lock()
        self._in_line = 0
        self._counting = threading.Lock()

    @contextmanager
    def turn(self, seconds: float) -> Iterator[float]:
        """Wait in line, and get the time limit for the grammar whose turn it is: `seconds`, or less if others
        wait, so that slow grammars cannot keep them for long."""
        self._count(1)
        with self._turn:  # the next one in line must not count this one
            try:
                yield min(seconds, CROWDED_SECONDS) if self._in_line > 1 else seconds
            finally:
                self._count(-1)

    def error_of(
        self, grammar: Grammar, tokenizer: dict[str, Any], definition: str, seconds: float
    ) -> str | None:
        """Why a grammar cannot be used with a tokenizer; None if it can. Only inside a `turn`.

        WorkerTooSlow if that is not known after `seconds`.
        `tokenizer` has its name and its end tokens; `definition` is sent to a process that does not know it.
        """
        order = json.dumps(tokenizer | grammar.fields)
        try:
            answer = self._process.request(order, seconds)
            if "unknown" in answer:
                self._process.request(json.dumps(tokenizer | {"definition": definition}), TOKENIZER_SECONDS)
                answer = self._process.request(order, seconds)
        except WorkerTooSlow:
            raise
        except WorkerStopped as stopped:
            return f"it {stopped}"
        if "unknown" in answer:  # the process has ended in between
            return "its process was stopped"
        error: str | None = answer.get("error")
        return error

    def _count(self, number: int) -> None:
        with self._counting:
            self._in_line += number
