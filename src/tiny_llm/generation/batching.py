"""Continuous batching to read: a round prefills a chunk of one prompt and decodes a token of each request.

The loop of the course, for any model and cache; `LLM`, commands and servers stand on `engine/`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from ..cache.batching import make_batch_cache
from ..errors import NumericError
from .request import Request
from .result import checked_results
from .sequence import next_logits

Finished = Callable[[Request], None]
Sampled = int | NumericError  # a token, or why there is none


def run_batch(
    model: Any,
    num_requests: int,
    make_request: Callable[[int], Request],
    max_seq_len: int,
    batch_size: int,
    finished: Finished | None = None,
) -> list[Request]:
    """Run `num_requests` requests, up to `batch_size` at a time; return them in order.

    `make_request(index)` is called after the prefill of the previous request. A request ends at `max_seq_len`
    tokens in its cache at the latest; then `finished` is called with it. NaN in the logits of one request
    ends only that one: the others run to their end, then the error is raised with all results.
    """
    # More slots than requests would stay idle.
    batch = DenseBatch(model, min(batch_size, max(1, num_requests)), max_seq_len, finished)
    waiting = deque(range(num_requests))
    prefilling: Request | None = None
    try:
        while waiting or prefilling or batch.active:
            if prefilling is None and waiting:
                prefilling = make_request(waiting.popleft())
            if prefilling and not prefilling.is_prefill_done:
                try:
                    prefilling.try_prefill()
                except NumericError as error:
                    prefilling.fail(error)
            if prefilling and prefilling.is_prefill_done and batch.admit(prefilling):
                prefilling = None
            batch.step()
    finally:
        if prefilling:
            prefilling.release()
        batch.release()
    done = sorted(batch.done, key=lambda request: request.prompt_idx)
    checked_results([request.result for request in done])
    return done


class DenseBatch:
    """The requests in decode, one in each slot of the batching caches."""

    def __init__(self, model: Any, size: int, max_seq_len: int, finished: Finished | None):
        self._model = model
        self._finished = finished
        self._max_seq_len = max_seq_len
        self._slots: list[Request | None] = [None] * size
        self._caches = make_batch_cache(model, size, max_seq_len)
        self.done: list[Request] = []

    @property
    def active(self) -> dict[int, Request]:
        return {slot: request for slot, request in enumerate(self._slots) if request is not None}

    def admit(self, request: Request) -> bool:
        """Put a request after its prefill into an idle slot; return False if there is none."""
        if request.is_done:  # after its first token
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
        """Decode one token of each request; requests that are done leave."""
        active = self.active
        if not active:
            return
        tokens = mx.array([request.next_token if request else 0 for request in self._slots])
        offsets = [request.offset if request else 0 for request in self._slots]
        logits = next_logits(self._model, tokens[:, None], offsets, self._caches)
        self._take(active, sample_each(active, logits))

    def _take(self, requests: dict[int, Request], tokens: list[Sampled]) -> None:
        """Give each request its token, or the error that ends it; those that are done leave."""
        for (slot, request), token in zip(requests.items(), tokens, strict=True):
            if isinstance(token, int):
                request.decode_done(token)
            else:
                request.fail(token)
            if not request.is_done and request.offset >= self._max_seq_len:
                request.finish()
            if request.is_done:
                self._free(slot)
                self._keep(request)

    def release(self) -> None:
        """Release all requests, finished or not."""
        for slot in self.active:
            self._free(slot)

    def _keep(self, request: Request) -> None:
        self.done.append(request)
        if self._finished is not None and request.error is None:
            self._finished(request)

    def _free(self, slot: int) -> None:
        for cache in self._caches:
            cache.remove_request(slot)
        self._slots[slot] = None


def sample_each(active: dict[int, Request], logits: mx.array) -> list[Sampled]:
    """The next token of each request from its row of `logits` [B, V]."""
    ids = [request.sampler.sample(logits[slot : slot + 1]) for slot, request in active.items()]
    mx.eval(ids, [request.sampler.pending_arrays for request in active.values()])
    return [_result(request, token) for request, token in zip(active.values(), ids, strict=True)]


def _result(request: Request, token: mx.array) -> Sampled:
    try:
        return request.sampler.result(token)
    except NumericError as error:
        return error
