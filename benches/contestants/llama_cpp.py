"""llama.cpp through the low-level half of llama-cpp-python: token ids in, logits out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.contestants.sequence import greedy_backend
from benches.names import FORMS, LLAMA_CPP, Missing
from tiny_llm_tools.benchmark.backends import BenchBackend

FLASH_ATTENTION = dict(zip(FORMS[LLAMA_CPP], (1, 0), strict=True))  # llama_flash_attn_type of each form
_KEPT: list[object] = []  # functions that C has pointers to


def llama_cpp(path: str, threads: int, context: int) -> dict[str, BenchBackend]:
    """A GGUF file, run as by `llama-bench`: one call reads a prompt, in steps of 512 tokens.

    A backend with its flash attention and one without: which is faster depends on machine and context. All
    other options are llama.cpp's defaults, among them a KV cache in float16.
    """
    library, model = load_library(path)
    return {
        form: greedy_backend(form, _Sequence(library, model, form, threads, context))
        for form in FLASH_ATTENTION
    }


def context_options(library: Any, form: str, threads: int) -> Any:
    """llama.cpp's defaults, with that form of attention and that many threads for prompts and for tokens."""
    options = library.llama_context_default_params()
    options.flash_attn_type = FLASH_ATTENTION[form]
    options.n_threads = options.n_threads_batch = threads
    return options


def load_library(path: str) -> tuple[Any, Any]:
    """The library and the model in a GGUF file; Missing if it is not installed."""
    try:
        import llama_cpp as library
    except ImportError as error:
        raise Missing(
            "llama-cpp-python is not installed: docs/benchmarks/method.md says how to build it"
        ) from error
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

    def __init__(self, library: Any, model: Any, form: str, threads: int, context: int):
        self._library = library
        options = context_options(library, form, threads)
        options.n_ctx = options.n_batch = context
        self._context = library.llama_init_from_model(model, options)
        if not self._context:
            raise RuntimeError(f"llama.cpp: no context of {context} tokens")
        self._vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
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
