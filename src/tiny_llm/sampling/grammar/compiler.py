"""From a grammar to the state of an answer, for one tokenizer. Another process compiles a grammar first."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, GrammarQueueBusy, UnsupportedError
from ...runtime.worker_process import WorkerProcess, WorkerTooSlow
from .allowance import Allowance
from .grammar import Grammar
from .refusals import Refusals
from .state import GrammarState
from .trial import Trials

if TYPE_CHECKING:
    import llguidance

SECONDS = 5.0  # time limit of a grammar
MAX_COMPILED = 32  # grammars kept for each tokenizer

# One process for the grammars of all models, started at the first grammar.
GRAMMAR_WORKER = WorkerProcess(Path(__file__).with_name("check_process.py"))
TRIALS = Trials(GRAMMAR_WORKER)


def start_grammar(tokenizer: Any, grammar: Grammar, seconds: float = SECONDS) -> GrammarState:
    """The state at the beginning of an answer of a model with this tokenizer.

    `tokenizer` has `definition`, the text of a tokenizer.json, and `eos_token_ids`. A grammar that does not
    compile within `seconds` is an ArgumentError; a repeated one is copied, or refused at once. While other
    grammars wait it has less time: GrammarQueueBusy if that is not enough. Callable from any thread.
    """
    return _compiler_of(tokenizer).start(grammar, seconds)


def knows_grammar(tokenizer: Any, grammar: Grammar) -> bool:
    """Whether `start_grammar` takes no time, because the grammar was compiled or refused before."""
    with _compilers_lock:
        compiler = _compilers.get(tokenizer)
    return compiler is not None and compiler.knows(grammar)


class GrammarCompiler:
    """The compiled grammars of one tokenizer, each with its state at the beginning."""

    def __init__(self, definition: str, end_tokens: list[int]):
        from .check_process import make_tokenizer  # needs llguidance, which is optional

        self._definition = definition
        self._end_tokens = end_tokens
        self._name = hashlib.sha256(f"{end_tokens}{definition}".encode()).hexdigest()
        self._tokenizer = make_tokenizer(definition, end_tokens)
        self._compiled: OrderedDict[Grammar, tuple[llguidance.LLMatcher, Allowance]] = OrderedDict()
        self._refused = Refusals()
        self._lock = threading.Lock()  # guards both

    def start(self, grammar: Grammar, seconds: float) -> GrammarState:
        if (state := self._find(grammar)) is not None:
            return state
        with TRIALS.turn(seconds) as limit:
            if (state := self._find(grammar)) is not None:  # of another request meanwhile
                return state
            known = {"tokenizer": self._name, "end_tokens": self._end_tokens}
            try:
                reason = TRIALS.error_of(grammar, known, self._definition, limit)
            except WorkerTooSlow as slow:
                if limit < seconds:  # it may compile when no other waits
                    raise GrammarQueueBusy(limit) from slow
                reason = f"it {slow}"
            if reason is not None:
                self._refuse(grammar, f"does not compile: {reason}")
                raise _refusal(grammar, f"does not compile: {reason}")
            from .check_process import make_matcher

            matcher = make_matcher(self._tokenizer, grammar.kind, grammar.source, grammar.preface)
            allowance = Allowance(lambda reason: self._refuse(grammar, reason))
            with self._lock:
                self._compiled[grammar] = matcher, allowance
                while len(self._compiled) > MAX_COMPILED:
                    self._compiled.popitem(last=False)
            return self._state(matcher, allowance)

    def knows(self, grammar: Grammar) -> bool:
        with self._lock:
            return grammar in self._compiled or self._refused.find(grammar) is not None

    def _find(self, grammar: Grammar) -> GrammarState | None:
        """The state at the beginning for a grammar that was compiled; ArgumentError if it was refused."""
        with self._lock:
            reason = self._refused.find(grammar)
            if reason is not None:
                raise _refusal(grammar, reason)
            if grammar not in self._compiled:
                return None
            self._compiled.move_to_end(grammar)
            return self._state(*self._compiled[grammar])

    def _state(self, matcher: llguidance.LLMatcher, allowance: Allowance) -> GrammarState:
        return GrammarState(matcher.deep_copy(), frozenset(self._end_tokens), allowance)

    def _refuse(self, grammar: Grammar, reason: str) -> None:
        with self._lock:
            self._compiled.pop(grammar, None)
            self._refused.add(grammar, reason)


def _refusal(grammar: Grammar, reason: str) -> ArgumentError:
    expected = f"one that llguidance compiles in {SECONDS:g} s and follows fast"
    return ArgumentError("Grammar", "grammar", f"a {grammar.kind} that {reason}", expected)


_compilers: weakref.WeakKeyDictionary[Any, GrammarCompiler] = weakref.WeakKeyDictionary()
_compilers_lock = threading.Lock()


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
