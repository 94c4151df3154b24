"""Continuous batching to read: a round prefills a chunk of one prompt and decodes a token of each request.

The loop of the course, for any model and cache; also for lists on a GPU, where dense caches are faster than
pages. On a CPU, lists and servers run on `engine/`, with pages and a scheduler.
"""

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import mlx.core as mx

from ..cache.batching import BatchingKvCache
from ..errors import AnswerError, GrammarError, NumericError
from ..sampling.select import argmax, selected_logits
from .request import Request
from .result import checked_results
from .tokens import next_logits

Finished = Callable[[Request], None]
Sampled = int | AnswerError  # a token, or why there is none: NaN, or the grammar


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
    tokens in its cache at the latest; then `finished` is called with it. NaN in the logits of one request, or
    an error of its grammar, ends only that one: the others run to their end, then the error is raised with
    all results.
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
                except AnswerError as error:
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


class Step(NamedTuple):
    """A decode step of greedy requests that was started and not read."""

    requests: dict[int, Request]  # by slot
    ids: mx.array  # [B]
    selected: mx.array  # their logits [B, 1]


class DenseBatch:
    """The requests in decode, one in each slot of the batching caches."""

    def __init__(self, model: Any, size: int, max_seq_len: int, finished: Finished | None):
        self._model = model
        self._finished = finished
        self._max_seq_len = max_seq_len
        self._slots: list[Request | None] = [None] * size
        self._caches = make_batch_cache(model, size, max_seq_len)
        self._started: Step | None = None
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
        if self._started is None and not _are_greedy(active):
            logits = self._logits(mx.array([request.next_token if request else 0 for request in self._slots]))
            self._take(active, sample_each(active, logits))
            return
        step = self._started or self._start(active, None)
        # The next step is started before the tokens of this one are read, so that the device does not wait. A
        # request that ends with this step takes part in vain.
        try:
            self._started = self._start(active, step) if self._starts_ahead(active) else None
        finally:  # the tokens of this one are valid even if the next one cannot start
            self._take(step.requests, _read(step))

    def _starts_ahead(self, active: dict[int, Request]) -> bool:
        may = getattr(self._model, "starts_ahead", None)
        fits = all(request.offset + 2 <= self._max_seq_len for request in active.values())
        return may is not None and fits and _are_greedy(active) and bool(may(self._caches))

    def _start(self, active: dict[int, Request], before: Step | None) -> Step:
        """Start a step on the newest tokens: known ones, or those of a step `before` that is not read yet."""
        tokens = mx.array([request.next_token if request else 0 for request in self._slots], mx.uint32)
        unread: set[int] = set()
        if before is not None:
            unread = {slot for slot, request in before.requests.items() if active.get(slot) is request}
            is_unread = mx.array([slot in unread for slot in range(len(self._slots))])
            tokens = mx.where(is_unread, before.ids, tokens)
        logits = self._logits(tokens, unread)
        ids = argmax(logits)
        step = Step(active, ids, selected_logits(logits, ids))
        mx.async_eval(step.ids, step.selected)  # type: ignore[no-untyped-call]
        return step

    def _logits(self, tokens: mx.array, unread: Collection[int] = ()) -> mx.array:
        """The logits [B, V] after `tokens` [B]; in slots `unread` they follow a token that is not read."""
        offsets = [request.offset if request else 0 for request in self._slots]
        offsets = [offset + (slot in unread) for slot, offset in enumerate(offsets)]
        return next_logits(self._model, tokens[:, None], offsets, self._caches)

    def _take(self, requests: dict[int, Request], tokens: list[Sampled]) -> None:
        """Give each request its token, or the error that ends it; those that are done leave."""
        for (slot, request), token in zip(requests.items(), tokens, strict=True):
            if self._slots[slot] is not request:  # it has ended before
                continue
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
        self._started = None
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


def make_batch_cache(model: Any, size: int, max_seq_len: int) -> list[Any]:
    """One cache per layer; models of others get the batching cache of the course."""
    if hasattr(model, "create_batch_cache"):
        made: list[Any] = model.create_batch_cache(size, max_seq_len)
        return made
    return [BatchingKvCache(size, max_seq_len) for _ in range(model.num_hidden_layers)]


def sample_each(active: dict[int, Request], logits: mx.array) -> list[Sampled]:
    """The next token of each request from its row of `logits` [B, V]."""
    ids = [_sampled(request, logits[slot : slot + 1]) for slot, request in active.items()]
    drawn = [each for each in ids if isinstance(each, mx.array)]
    mx.eval(drawn, [request.sampler.pending_arrays for request in active.values()])
    return [_result(request, token) for request, token in zip(active.values(), ids, strict=True)]


def _are_greedy(active: dict[int, Request]) -> bool:
    return all(request.sampler.is_greedy for request in active.values())


def _read(step: Step) -> list[Sampled]:
    """The next token of each request of a step."""
    mx.eval(step.ids, step.selected)
    tokens: Any = step.ids.tolist()
    values: Any = step.selected.tolist()
    return [NumericError() if math.isnan(values[slot][0]) else tokens[slot] for slot in step.requests]


def _sampled(request: Request, logits: mx.array) -> mx.array | GrammarError:
    try:
        return request.sampler.sample(logits)
    except GrammarError as error:
        return error


def _result(request: Request, token: mx.array | GrammarError) -> Sampled:
    if isinstance(token, GrammarError):
        return token
    try:
        return request.sampler.result(token)
    except NumericError as error:
        return error
