"""From a grammar to the state of an answer, for one tokenizer. Another process compiles a grammar first."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, UnsupportedError
from ...runtime.worker_process import WorkerProcess, WorkerStopped
from .grammar import Grammar
from .state import GrammarState

if TYPE_CHECKING:
    import llguidance

SECONDS = 5.0  # time limit of a grammar
TOKENIZER_SECONDS = 60.0
MAX_COMPILED = 32  # grammars kept for each tokenizer

# One process for the grammars of all models, started at the first grammar.
GRAMMAR_WORKER = WorkerProcess(Path(__file__).with_name("check_process.py"))


def start_grammar(tokenizer: Any, grammar: Grammar, seconds: float = SECONDS) -> GrammarState:
    """The state at the beginning of an answer of a model with this tokenizer.

    `tokenizer` has `definition`, the text of a tokenizer.json, and `eos_token_ids`. A grammar that does not
    compile within `seconds` is an ArgumentError; a repeated one is copied. Callable from any thread.
    """
    return _compiler_of(tokenizer).start(grammar, seconds)


class GrammarCompiler:
    """The compiled grammars of one tokenizer, each with its state at the beginning."""

    def __init__(self, definition: str, end_tokens: list[int]):
        from .check_process import make_tokenizer  # needs llguidance, which is optional

        self._definition = definition
        self._end_tokens = end_tokens
        self._name = hashlib.sha256(f"{end_tokens}{definition}".encode()).hexdigest()
        self._tokenizer = make_tokenizer(definition, end_tokens)
        self._compiled: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, grammar: Grammar, seconds: float) -> GrammarState:
        with self._lock:
            matcher = self._compiled.get(grammar)
            if matcher is not None:
                self._compiled.move_to_end(grammar)
                return GrammarState(matcher.deep_copy(), frozenset(self._end_tokens))
        self._try_out(grammar, seconds)
        from .check_process import make_matcher

        matcher = make_matcher(self._tokenizer, grammar.kind, grammar.text)
        with self._lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
            return GrammarState(matcher.deep_copy(), frozenset(self._end_tokens))

    def _try_out(self, grammar: Grammar, seconds: float) -> None:
        """Compile in the process, which can be stopped; ArgumentError if that fails or takes too long."""
        known = {"tokenizer": self._name, "end_tokens": self._end_tokens}
        order = json.dumps(known | {"kind": grammar.kind, "text": grammar.text})
        try:
            answer = GRAMMAR_WORKER.request(order, seconds)
            if "unknown" in answer:
                GRAMMAR_WORKER.request(
                    json.dumps(known | {"definition": self._definition}), TOKENIZER_SECONDS
                )
                answer = GRAMMAR_WORKER.request(order, seconds)
        except WorkerStopped as stopped:
            answer = {"error": f"it {stopped}"}
        if "unknown" in answer:  # a grammar of another thread ended the process in between
            answer = {"error": "its process was stopped"}
        if "error" in answer:
            got = f"a {grammar.kind} that does not compile: {answer['error']}"
            raise ArgumentError("Grammar", "grammar", got, f"one that llguidance compiles in {seconds:g} s")


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
