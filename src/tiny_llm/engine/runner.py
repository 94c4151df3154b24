"""From the rows of a plan to logits: a model, and the pages of its keys and values."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..cache.storage import PagedStorage
from ..models.packed import Batch, PackedBlocks, PackedRequest, packed_logits
from ..scheduler.plan import Plan
from .sizes import PoolSize


class Runner:
    """Runs steps of a model. Everything here belongs to one thread."""

    def __init__(self, model: Any, size: PoolSize, *, grows: bool = False, batch_invariant: bool = False):
        self.model = model
        self._batch_invariant = batch_invariant
        self._size = size
        self._blocks = PackedBlocks(model)
        self._grows = grows  # pages are allocated when they are first used
        self.storage = self._new_storage()

    def logits(self, plan: Plan) -> mx.array:
        """The logits [R, V] that the rows of a plan want, in order; nothing is evaluated."""
        if self._grows:
            self._reserve(plan)
        self.copy_pages(plan.copies)
        return self.run([PackedRequest(row.token_ids, row.stop, row.pages, row.scored) for row in plan.rows])

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy pages, each from the first to the second of a pair."""
        self.storage.copy_pages(copies)

    def run(self, requests: Sequence[PackedRequest]) -> mx.array:
        """The logits [R, V] that the requests want, in order; nothing is evaluated."""
        batch = Batch(requests, self.storage, batch_invariant=self._batch_invariant)
        return packed_logits(self.model, batch, self.storage, self._blocks)

    def forget(self) -> None:
        """Start with new pages: after a step that failed, arrays may be unusable."""
        del self.storage  # there may be no room for both
        mx.clear_cache()
        self.storage = self._new_storage()

    def _reserve(self, plan: Plan) -> None:
        """Make the pages of a plan. Grows by 1.5x, so that a page is copied at most three times."""
        needed = 1 + max(page for row in plan.rows for page in row.pages)
        if needed > self.storage.num_pages:
            wanted = max(needed, self.storage.num_pages * 3 // 2)
            self.storage.grow(min(wanted, self._size.num_pages))

    def _new_storage(self) -> PagedStorage:
        size = self._size
        num_pages = 1 if self._grows else size.num_pages
        return PagedStorage(size.layers, num_pages, size.kv_heads, size.page_size, size.head_dim, size.dtype)
