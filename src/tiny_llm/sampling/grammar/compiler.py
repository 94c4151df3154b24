"""From a grammar to the state of an answer, for one tokenizer. Another process compiles a grammar first."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import ArgumentError, GrammarQueueBusy, UnsupportedError
from ...runtime.worker_process import WorkerProcess, WorkerStopped, WorkerTooSlow
from .grammar import Grammar
from .state import GrammarState, TimeBudget

MAX_REFUSALS = 256
FORGET_AFTER = 300.0  # seconds: a time limit may be exceeded because the machine was busy
TOKENIZER_SECONDS = 60.0
CROWDED_SECONDS = 1.0  # limit of a grammar while others wait; almost all take less than a tenth of it
SECONDS = 5.0  # time limit of a grammar
MAX_COMPILED = 32  # grammars kept for each tokenizer, beside those that somebody holds
MAX_COMPILED_BYTES = 64 * 2**20  # of these; a schema of 64 KiB takes 1 to 20 MiB, a hostile one 300
# Bytes of a compiled grammar where nobody has measured it: of the smallest, and for each byte of its source.
# Schemas as programs write them take 60 to 150.
LEAST_SIZE, SIZE_PER_BYTE = 90 * 2**10, 150
# One process for the grammars of all models, started at the first grammar.
GRAMMAR_WORKER = WorkerProcess(Path(__file__).with_name("check_process.py"))
_compilers_lock = threading.Lock()


class Refusals:
    """The newest refused grammars of one tokenizer, each with the reason."""

    def __init__(self) -> None:
        self._reasons: OrderedDict[Grammar, tuple[str, float]] = OrderedDict()

    def add(self, grammar: Grammar, reason: str) -> None:
        """Remember why a grammar cannot be used."""
        self._reasons.pop(grammar, None)
        self._reasons[grammar] = (reason, time.monotonic() + FORGET_AFTER)
        while len(self._reasons) > MAX_REFUSALS:
            self._reasons.popitem(last=False)

    def find(self, grammar: Grammar) -> str | None:
        """The reason; None if the grammar was not refused, or long ago."""
        reason, end = self._reasons.get(grammar, ("", 0.0))
        if time.monotonic() < end:
            return reason
        self._reasons.pop(grammar, None)
        return None


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

    def run(
        self, grammar: Grammar, tokenizer: dict[str, Any], definition: str, seconds: float
    ) -> dict[str, Any]:
        """As `check_process.handle`: {"size": bytes} of what a grammar is compiled to, or {"error": reason}.

        Only inside a `turn`. WorkerTooSlow if that is not known after `seconds`.
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
            return {"error": f"it {stopped}"}
        if "unknown" in answer:  # the process has ended in between
            return {"error": "its process was stopped"}
        return answer

    def _count(self, number: int) -> None:
        with self._counting:
            self._in_line += number


TRIALS = Trials(GRAMMAR_WORKER)


def start_grammar(tokenizer: Any, grammar: Grammar, seconds: float = SECONDS) -> GrammarState:
    """The state at the beginning of an answer of a model with this tokenizer.

    `tokenizer` has `definition`, the text of a tokenizer.json, and `eos_token_ids`. A grammar that does not
    compile within `seconds` is an ArgumentError; a repeated one is copied, or refused at once. While other
    grammars wait it has less time: GrammarQueueBusy if that is not enough. Callable from any thread.
    """
    return compile_grammar(tokenizer, grammar, seconds).start()


def compile_grammar(tokenizer: Any, grammar: Grammar, seconds: float = SECONDS) -> GrammarState:
    """As `start_grammar`, but what it copies: while somebody holds it, `start_grammar` takes no time."""
    return _compiler_of(tokenizer).compile(grammar, seconds)


def find_grammar(tokenizer: Any, grammar: Grammar) -> GrammarState | None:
    """What `compile_grammar` returns, if that takes no time; ArgumentError if it was refused before."""
    with _compilers_lock:
        compiler = _compilers.get(tokenizer)
    return None if compiler is None else compiler.find(grammar)


class GrammarCompiler:
    """The compiled grammars of one tokenizer: the states at the beginning, which are only copied."""

    def __init__(self, definition: str, end_tokens: list[int]):
        from .check_process import make_tokenizer  # needs llguidance, which is optional

        self._definition = definition
        self._end_tokens = end_tokens
        self._name = hashlib.sha256(f"{end_tokens}{definition}".encode()).hexdigest()
        self._tokenizer = make_tokenizer(definition, end_tokens)
        self._latest: OrderedDict[Grammar, GrammarState] = OrderedDict()
        self._held: weakref.WeakValueDictionary[Grammar, GrammarState] = weakref.WeakValueDictionary()
        self._refused = Refusals()
        self._lock = threading.Lock()  # guards all three

    def compile(self, grammar: Grammar, seconds: float) -> GrammarState:
        if (state := self.find(grammar)) is not None:
            return state
        with TRIALS.turn(seconds) as limit:
            if (state := self.find(grammar)) is not None:  # of another request meanwhile
                return state
            known = {"tokenizer": self._name, "end_tokens": self._end_tokens}
            try:
                tried = TRIALS.run(grammar, known, self._definition, limit)
            except WorkerTooSlow as slow:
                if limit < seconds:  # it may compile when no other waits
                    raise GrammarQueueBusy(limit) from slow
                tried = {"error": f"it {slow}"}
            if "error" in tried:
                reason = f"does not compile: {tried['error']}"
                self._refuse(grammar, reason)
                raise _refusal(grammar, reason)
            from .check_process import make_matcher

            matcher = make_matcher(self._tokenizer, **grammar.fields)
            budget = TimeBudget(lambda reason: self._refuse(grammar, reason))
            estimate = LEAST_SIZE + SIZE_PER_BYTE * len(grammar.text)
            size = tried.get("size") or estimate
            state = GrammarState(matcher, frozenset(self._end_tokens), budget, size=size)
            with self._lock:
                self._keep(grammar, state)
            return state

    def find(self, grammar: Grammar) -> GrammarState | None:
        """The state at the beginning for a grammar that was compiled; ArgumentError if it was refused."""
        with self._lock:
            reason = self._refused.find(grammar)
            if reason is not None:
                raise _refusal(grammar, reason)
            state = self._held.get(grammar)
            if state is not None:
                self._keep(grammar, state)
            return state

    def _keep(self, grammar: Grammar, state: GrammarState) -> None:
        self._held[grammar] = self._latest[grammar] = state
        self._latest.move_to_end(grammar)
        while len(self._latest) > MAX_COMPILED or self._size() > MAX_COMPILED_BYTES:
            self._latest.popitem(last=False)

    def _size(self) -> int:
        return sum(state.size for state in self._latest.values())

    def _refuse(self, grammar: Grammar, reason: str) -> None:
        with self._lock:
            self._latest.pop(grammar, None)
            self._held.pop(grammar, None)
            self._refused.add(grammar, reason)


def _refusal(grammar: Grammar, reason: str) -> ArgumentError:
    expected = f"one that llguidance compiles in {SECONDS:g} s and follows fast"
    return ArgumentError("Grammar", "grammar", f"a {grammar.kind} that {reason}", expected)


_compilers: weakref.WeakKeyDictionary[Any, GrammarCompiler] = weakref.WeakKeyDictionary()


def _compiler_of(tokenizer: Any) -> GrammarCompiler:
    """The compiler of a tokenizer, made once."""
    definition = getattr(tokenizer, "definition", None)
    if definition is None:
        raise UnsupportedError("Grammar", "grammar", "a grammar", "none with a tokenizer of another library")
    if find_spec("llguidance") is None:
        expected = "none: llguidance is not installed; pip install 'tiny-llm[serve]' brings it"
        raise UnsupportedError("Grammar", "grammar", "a grammar", expected)
    with _compilers_lock:
        compiler = _compilers.get(tokenizer)
        if compiler is None:
            compiler = _compilers[tokenizer] = GrammarCompiler(definition, sorted(tokenizer.eos_token_ids))
        return compiler
