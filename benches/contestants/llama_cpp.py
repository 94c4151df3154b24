"""llama.cpp through the low-level half of llama-cpp-python: token ids in, logits out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.contestants.sequence import greedy_backend
from benches.names import LLAMA_CPP, Missing
from tiny_llm.benchmark.backends import BenchBackend

_KEPT: list[object] = []  # functions that C has pointers to


def llama_cpp(path: str, threads: int, context: int) -> dict[str, BenchBackend]:
    """A GGUF file, run as by `llama-bench`: one call reads a prompt, in steps of 512 tokens.

    All other options are llama.cpp's defaults, among them its flash attention and a KV cache in float16.
    """
    return {LLAMA_CPP: greedy_backend(LLAMA_CPP, _Sequence(path, threads, context))}


def load_library(path: str) -> tuple[Any, Any]:
    """The library and the model in a GGUF file; Missing if it is not installed."""
    try:
        import llama_cpp as library
    except ImportError as error:
        raise Missing("llama-cpp-python is not installed: docs/benchmarks.md says how to build it") from error
    quiet = library.llama_log_callback(lambda *_: None)
    _KEPT.append(quiet)
    library.llama_log_set(quiet, ctypes.c_void_p(0))
    library.llama_backend_init()
    model = library.llama_model_load_from_file(path.encode(), library.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp: cannot load {path}")
    return library, model


class _Sequence:
    """One sequence in a context of llama.cpp."""

    def __init__(self, path: str, threads: int, context: int):
        library, self._model = load_library(path)
        self._library = library
        options = library.llama_context_default_params()
        options.n_ctx = options.n_batch = context
        options.n_threads = options.n_threads_batch = threads
        self._context = library.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp: no context of {context} tokens")
        self._vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))
        self._batch = library.llama_batch_init(context, 0, 1)
        self._offset = 0

    def clear(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), False)
        self._offset = 0

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The logits after the last of these tokens; no others are computed."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place] = token
            batch.pos[place] = self._offset + place
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = 0
            batch.logits[place] = place == len(tokens) - 1
        status = self._library.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama.cpp: llama_decode of {len(tokens)} tokens gave {status}")
        self._offset += len(tokens)
        found = self._library.llama_get_logits_ith(self._context, len(tokens) - 1)
        return np.ctypeslib.as_array(found, shape=(self._vocabulary,))
