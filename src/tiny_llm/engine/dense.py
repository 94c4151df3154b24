"""Steps on dense caches, for where pages have no kernel: the pages of a plan are ignored."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import mlx.core as mx

from ..cache.batching import make_batch_cache
from ..cache.stacked import StackedKvCache
from ..generation.defaults import prefill_chunk
from ..generation.sequence import SequenceState, eval_caches, next_logits
from ..runtime.gpu import computes_on_gpu
from ..scheduler import Plan, RequestState, Row, Status


class RequestCaches(SequenceState):
    """The caches of one request; after its end, `token_ids` are those of its first tokens."""

    def __init__(self, model: Any):
        super().__init__(model)
        self.sure = 0  # the number of tokens without the newest drafts
        self.token_ids: array[int] = array("i")
        self.salt = ""

    def in_common(self, state: RequestState, most: int) -> int:
        """The number of first tokens, up to `most`, that a request has, too; 0 with another salt."""
        if state.salt != self.salt:
            return 0
        most = min(most, len(self.token_ids))
        pairs = zip(self.token_ids[:most], state.token_ids[:most], strict=True)
        return next((number for number, (one, other) in enumerate(pairs) if one != other), most)


class DenseRunner:
    """Runs steps of a model. Everything here belongs to one thread.

    Each running request has caches of its own. Tokens that a plan takes for computed and that are not in
    them, such as those in pages of another request, are computed first. Of the requests that end, the newest
    `keeps` leave their caches to prompts that begin alike.
    """

    def __init__(self, model: Any, *, keeps: int = 0):
        self._model = model
        self._keeps = keeps
        self._running: dict[RequestState, RequestCaches] = {}
        self._ended: list[RequestCaches] = []  # the oldest first
        self._together = Together(model)

    def logits(self, plan: Plan, token_ids: mx.array | None = None) -> mx.array:
        """The logits [R, V] that the rows of a plan want, in order.

        `token_ids` are those of all rows, one each, if they are not computed yet. Nothing is evaluated but
        the caches after tokens without logits, so that the activations are freed.
        """
        self.rest()
        rows, caches = plan.rows, [self._before(row) for row in plan.rows]
        if token_ids is None:
            token_ids = mx.array([token for row in rows for token in row.token_ids])
        stops = list(accumulate(len(row.token_ids) for row in rows))
        results: dict[int, mx.array] = {}  # by the number of a row
        decoding = [number for number, row in enumerate(rows) if len(row.token_ids) == row.scored == 1]
        if len(decoding) > 1:
            newest = token_ids[mx.array([stops[number] - 1 for number in decoding])]
            logits = self._together.logits(newest, [caches[number] for number in decoding])
            if len(decoding) == len(rows):
                return logits
            results = {number: logits[place : place + 1] for place, number in enumerate(decoding)}
        for number, row in enumerate(rows):
            ids = token_ids[stops[number] - len(row.token_ids) : stops[number]]
            if row.scored == 0:
                self._fill(caches[number], ids)
            elif number not in results:
                results[number] = self._alone(caches[number], ids, row.scored)
        if not results:
            return mx.zeros((0, self._model.vocab_size))
        return mx.concatenate([results[number] for number in sorted(results)])

    @property
    def starts_at_once(self) -> bool:
        """Whether the last logits can be started without waiting: a CPU takes some fifty operations ahead."""
        return computes_on_gpu()

    def forget(self) -> None:
        """Drop all caches: after a step that failed, arrays may be unusable."""
        for caches in [*self._running.values(), *self._ended]:
            caches.close()
        self._running, self._ended, self._together = {}, [], Together(self._model)

    def rest(self) -> None:
        """Take the caches from requests that do not run any more."""
        ended = [state for state in self._running if state.status is not Status.RUNNING]
        for state in ended:
            caches = self._running.pop(state)
            self._together.take_out(caches)
            # The last token of a step that was started ahead may be missing.
            caches.token_ids, caches.salt = state.token_ids[: caches.sure], state.salt
            self._ended.append(caches)
        while len(self._ended) > self._keeps:
            self._ended.pop(0).close()
        if ended:  # else those that were taken out would keep the arrays of the others
            kept = [layer.storage for caches in self._ended for layer in caches.cache]
            mx.async_eval(kept)  # type: ignore[no-untyped-call]

    def _before(self, row: Row) -> RequestCaches:
        """The caches of a request with all tokens before its row."""
        state = row.state
        caches = self._running.get(state)
        if caches is None:
            caches = self._running[state] = self._begin(state, row.start)
        if caches.offset > row.start:  # rejected drafts, which were computed alone
            caches.rewind(caches.offset - row.start)
        for start in range(caches.offset, row.start, prefill_chunk()):
            stop = min(start + prefill_chunk(), row.start)
            self._fill(caches, mx.array(list(state.token_ids[start:stop])))
        caches.sure = row.stop - len(row.drafts)
        return caches

    def _begin(self, state: RequestState, most: int) -> RequestCaches:
        """Caches with up to `most` tokens of a request that has none: those of an ended one, or new ones."""
        shared = [caches.in_common(state, most) for caches in self._ended]
        best = max(shared, default=0)
        if best == 0:
            return RequestCaches(self._model)
        caches = self._ended.pop(shared.index(best))
        caches.rewind(caches.offset - best)
        return caches

    def _alone(self, caches: RequestCaches, ids: mx.array, scored: int) -> mx.array:
        """The logits [scored, V] of the last of some tokens of one request."""
        self._together.take_out(caches)
        return caches.step(ids) if scored == 1 else caches.forward(ids)[-scored:]

    def _fill(self, caches: RequestCaches, ids: mx.array) -> None:
        """Compute the keys and values of some tokens of one request."""
        self._alone(caches, ids, 1)  # its logits are never evaluated
        eval_caches(caches.cache)


class Together:
    """Requests that decode together, one in each slot of the batching caches."""

    def __init__(self, model: Any):
        self._model = model
        self._slots: list[RequestCaches | None] = []
        self._caches: list[Any] = []

    def logits(self, token_ids: mx.array, members: Sequence[RequestCaches]) -> mx.array:
        """The logits [N, V] after the next token of each of N requests."""
        self._seat(members)
        places = [0 if each is None else members.index(each) for each in self._slots]
        offsets = [0 if each is None else each.offset for each in self._slots]
        logits = next_logits(self._model, token_ids[mx.array(places)][:, None], offsets, self._caches)
        for each in members:
            each.offset += 1
        return logits[mx.array([self._slots.index(each) for each in members])]

    def take_out(self, caches: RequestCaches) -> None:
        """Leave its slot idle, if a request has one: its tokens are in its own caches again."""
        if caches not in self._slots:
            return
        slot = self._slots.index(caches)
        self._slots[slot] = None
        for batch, own in zip(self._caches, caches.cache, strict=True):
            if isinstance(batch, StackedKvCache):  # the tokens were moved
                keys, values = (each[slot : slot + 1, :, : caches.offset] for each in batch.storage or ())
                own.update_and_fetch(keys, values)
                batch.remove_request(slot)
            else:  # `remove_request` would release its caches
                batch.kv_caches[slot] = None
        if not any(self._slots):
            self._slots, self._caches = [], []

    def _seat(self, members: Sequence[RequestCaches]) -> None:
        """Give these requests slots, and no others."""
        for each in self._slots:
            if each is not None and each not in members:
                self.take_out(each)
        # Stacked caches are copied when they are made, so some idle slots are cheaper.
        stacked = any(isinstance(each, StackedKvCache) for each in self._caches)
        most = 2 * len(members) if stacked else len(members)
        if not len(members) <= len(self._slots) <= most:
            for each in self._slots:
                if each is not None:
                    self.take_out(each)
            self._slots = [None] * len(members)
            self._caches = make_batch_cache(self._model, len(members), self._model.max_seq_len)
        for each in members:
            if each not in self._slots:
                slot = self._slots.index(None)
                self._slots[slot] = each
                for batch, own in zip(self._caches, each.cache, strict=True):
                    batch.add_request(own, slot)
