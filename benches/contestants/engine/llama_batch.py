"""llama.cpp's batched decode: several sequences in each `llama_decode`, as in its `llama-batched-bench`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benches.contestants.llama_cpp import FLASH_ATTENTION, context_options, load_library


class LlamaBatch:
    """Greedy answers to several prompts at once.

    The prompts are read in one call, in steps of 512 tokens, then each call decodes a token of every
    sequence. All other options are llama.cpp's defaults; `form` says whether flash attention is on. Each
    number of sequences has its contexts, as a context is shared out among its sequences.
    """

    def __init__(self, path: str, threads: int, tokens: int):
        self._library, self._model = load_library(path)
        self._threads, self._tokens, self._sequences = threads, tokens, 0
        self._contexts: dict[str, Any] = {}
        self._vocabulary = self._library.llama_vocab_n_tokens(
            self._library.llama_model_get_vocab(self._model)
        )

    def answers(self, prompts: Sequence[Sequence[int]], output: int, form: str) -> dict[str, Any]:
        """The time of a token of all answers of `output` tokens, and of those after the prompts were read."""
        if len(prompts) != self._sequences:
            self._make_contexts(len(prompts))
        self._context = self._contexts[form]
        begin = time.perf_counter()
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), False)
        tokens = [[token] for token in self._decode(prompts, 0)]
        read = time.perf_counter()
        for place in range(len(prompts[0]), len(prompts[0]) + output - 1):
            newest = self._decode([each[-1:] for each in tokens], place)
            for each, token in zip(tokens, newest, strict=True):
                each.append(token)
        end = time.perf_counter()
        count = len(prompts) * (output - 1)
        return {
            "tokens": tokens,
            "token": (end - begin) / (count + len(prompts)),
            "decoded": (end - read) / count,
        }

    def _make_contexts(self, sequences: int) -> None:
        for context in self._contexts.values():
            self._library.llama_free(context)
        if self._contexts:
            self._library.llama_batch_free(self._batch)
        for form in FLASH_ATTENTION:
            options = context_options(self._library, form, self._threads)
            options.n_seq_max = sequences
            options.n_ctx = options.n_batch = sequences * self._tokens
            self._contexts[form] = self._library.llama_init_from_model(self._model, options)
        if not all(self._contexts.values()):
            raise RuntimeError(f"llama.cpp: no context of {sequences} sequences of {self._tokens} tokens")
        self._batch = self._library.llama_batch_init(sequences * self._tokens, 0, 1)
        self._sequences = sequences

    def _decode(self, rows: Sequence[Sequence[int]], offset: int) -> list[int]:
        """Append tokens, as many to each sequence; the best token after each."""
        batch, count = self._batch, 0
        last: list[int] = []
        for sequence, row in enumerate(rows):
            for place, token in enumerate(row):
                batch.token[count] = token
                batch.pos[count] = offset + place
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = sequence
                batch.logits[count] = place == len(row) - 1
                count += 1
            last.append(count - 1)
        batch.n_tokens = count
        status = self._library.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama.cpp: llama_decode of {count} tokens gave {status}")
        return [self._best(row) for row in last]

    def _best(self, row: int) -> int:
        found = self._library.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(found, shape=(self._vocabulary,)).argmax())
