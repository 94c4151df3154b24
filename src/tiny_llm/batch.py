"""Continuous batching: requests share the steps of decoding; each joins and leaves when it is ready."""

from collections import deque
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from .engine.protocols import CachedModel, Tokenizer
from .engine.text import (
    context_length,
    encode_prompt,
    end_tokens,
    finalize,
    own_detokenizer,
    whole_characters,
)
from .engine.tokens import evaluate, next_logits, token_id
from .kv_cache import BatchingKvCache
from .sampling.select import argmax


class Request:
    """One prompt on its way to an answer, greedy: first its prompt is read in chunks, then tokens are added.

    `offset` is the number of tokens in `kv_cache`; `next_token` is the newest one, which is not among them.
    """

    def __init__(
        self,
        model: CachedModel,
        tokenizer: Tokenizer,
        prompt: str,
        prefill_max_step: int = 128,
        prompt_idx: int = 0,
    ):
        if prefill_max_step < 1:
            raise ValueError(f"Request: prefill_max_step: got {prefill_max_step}, expected at least 1")
        self.prompt = prompt
        self.model = model
        self.prefill_tokens = mx.array(encode_prompt("Request", [model], tokenizer, prompt))
        self.kv_cache: list[Any] = model.create_kv_cache()
        self.prefill_max_step = prefill_max_step
        self.prompt_idx = prompt_idx
        self.eos_token_id = tokenizer.eos_token_id
        self.detokenizer = own_detokenizer(tokenizer)
        self.is_done = False
        self.is_prefill_done = False
        self.next_token: int | None = None
        self.offset = 0
        self._end_tokens = end_tokens(tokenizer)

    def try_prefill(self) -> None:
        """Read the next chunk of the prompt; the last one gives the first token of the answer."""
        if self.is_prefill_done:
            raise ValueError("Request: try_prefill: got a call behind the last chunk, expected none")
        chunk = self.prefill_tokens[self.offset : self.offset + self.prefill_max_step]
        logits = next_logits(self.model, chunk[None], [self.offset], self.kv_cache)
        evaluate(self.kv_cache)
        self.offset += chunk.size
        if self.offset == self.prefill_tokens.size:
            self.is_prefill_done = True
            self.decode_done(token_id(argmax(logits[0])), update_offset=False)

    def decode_done(self, token: int, update_offset: bool = True) -> None:
        """Take the token that a step has given; an end token ends the request and is no part of the text."""
        if self.is_done:
            raise ValueError("Request: decode_done: got a token behind the end, expected none")
        if token in self._end_tokens:
            self.finish()
            return
        self.detokenizer.add_token(token)
        self.next_token = token
        if update_offset:
            self.offset += 1

    def finish(self) -> None:
        """End the answer here."""
        self.is_done = True
        finalize(self.detokenizer)

    def text(self) -> str:
        """The answer so far, in whole characters."""
        return whole_characters(self.detokenizer.text)

    def release(self) -> None:
        """Give back what the caches hold of a shared storage."""
        for layer in self.kv_cache:
            layer.release()


def batch_generate(
    model: Any,
    tokenizer: Tokenizer,
    prompts: list[str],
    max_seq_len: int = 512,
    batch_size: int = 5,
    prefill_step: int = 128,
    *,
    finished: Callable[[Request], None] | None = None,
) -> list[tuple[int, str]]:
    """Answer all `prompts`, greedily, up to `batch_size` at a time: pairs of index and text, in order.

    Each round reads one chunk of at most `prefill_step` tokens of one prompt, and adds one token to each
    answer under way. A request ends with an end token, or at `max_seq_len` tokens in its cache; `finished` is
    then called with it.
    """
    sizes = {"max_seq_len": max_seq_len, "batch_size": batch_size, "prefill_step": prefill_step}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"batch_generate: {name}: got {size}, expected at least 1")
    if isinstance(prompts, str):
        raise ValueError("batch_generate: prompts: got a string, expected a list of them")
    longest = min(max_seq_len, context_length(model) or max_seq_len)
    for index, prompt in enumerate(prompts):
        length = len(encode_prompt("batch_generate", [model], tokenizer, prompt))
        if length >= longest:
            raise ValueError(
                f"batch_generate: prompts[{index}]: got {length} tokens, expected fewer than {longest}"
            )
    # No more slots than requests, no longer chunks than prompts: whoever asks for more gets the same.
    batch = _Batch(model, min(batch_size, max(1, len(prompts))), longest, finished)
    chunk = min(prefill_step, longest)
    waiting = deque(enumerate(prompts))
    prefilling: Request | None = None
    try:
        while waiting or prefilling or batch.active:
            if prefilling is None and waiting:
                index, prompt = waiting.popleft()
                prefilling = Request(model, tokenizer, prompt, chunk, index)
            if prefilling and not prefilling.is_prefill_done:
                prefilling.try_prefill()
            if prefilling and prefilling.is_prefill_done and batch.admit(prefilling):
                prefilling = None
            batch.step()
    finally:
        if prefilling:
            prefilling.release()
        batch.release()
    return sorted(batch.results)


class _Batch:
    """The requests that decode together, one in each slot of the batching caches."""

    def __init__(self, model: Any, size: int, max_seq_len: int, finished: Callable[[Request], None] | None):
        self._model = model
        self._finished = finished
        self._max_seq_len = max_seq_len
        self._slots: list[Request | None] = [None] * size
        self._caches = [BatchingKvCache(size, max_seq_len) for _ in range(model.num_hidden_layers)]
        self.results: list[tuple[int, str]] = []

    @property
    def active(self) -> dict[int, Request]:
        return {slot: request for slot, request in enumerate(self._slots) if request is not None}

    def admit(self, request: Request) -> bool:
        """Take over a request whose prompt has been read, if it is done or a slot is idle."""
        if request.is_done:  # the first token was an end token
            request.release()
            self._keep(request)
            return True
        if None not in self._slots:
            return False
        slot = self._slots.index(None)
        for cache, prefilled in zip(self._caches, request.kv_cache, strict=True):
            cache.add_request(prefilled, slot)
        self._slots[slot] = request
        return True

    def step(self) -> None:
        """Add one token to each request; those that are done leave."""
        active = self.active
        if not active:
            return
        tokens = [[request.next_token if request else 0] for request in self._slots]
        offsets = [request.offset if request else 0 for request in self._slots]
        logits = next_logits(self._model, mx.array(tokens), offsets, self._caches)
        chosen: Any = argmax(logits).tolist()
        for slot, request in active.items():
            request.decode_done(chosen[slot])
            if not request.is_done and request.offset >= self._max_seq_len:
                request.finish()
            if request.is_done:
                self._leave(slot, request)

    def release(self) -> None:
        """Let all requests go, finished or not."""
        for slot in self.active:
            self._free(slot)

    def _leave(self, slot: int, request: Request) -> None:
        self._free(slot)
        self._keep(request)

    def _keep(self, request: Request) -> None:
        self.results.append((request.prompt_idx, request.text()))
        if self._finished is not None:
            self._finished(request)

    def _free(self, slot: int) -> None:
        for cache in self._caches:
            cache.remove_request(slot)
        self._slots[slot] = None
