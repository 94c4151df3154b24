"""Runs the model of an engine over pages of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from ..cache.storage import PagedStorage
from ..models.packed import Batch, PackedBlocks, PackedRequest, has_paged_kernel, packed_logits
from ..runtime.gpu import computes_on_gpu
from ..scheduler import Plan
from .dense import DenseRunner
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

    def logits(self, plan: Plan, token_ids: mx.array | None = None) -> mx.array:
        """The logits [R, V] that the rows of a plan want, in order; nothing is evaluated.

        `token_ids` are those of all rows, if they are not computed yet.
        """
        self.prepare(plan)
        requests = [PackedRequest(row.token_ids, row.stop, row.pages, row.scored) for row in plan.rows]
        return self.run(requests, token_ids)

    @property
    def starts_at_once(self) -> bool:
        """Whether the last logits can be started without waiting: a CPU takes some fifty operations ahead."""
        return self._blocks.found or computes_on_gpu()

    def prepare(self, plan: Plan) -> None:
        """Make the pages of a plan, and copy those that it says. What grows does so by 1.5x: so a page is
        copied at most three times."""
        needed = 1 + max(page for row in plan.rows for page in row.pages)
        if self._grows and needed > self.storage.num_pages:
            wanted = max(needed, self.storage.num_pages * 3 // 2)
            self.storage.grow(min(wanted, self._size.num_pages))
        self.storage.copy_pages(plan.copies)

    def run(self, requests: Sequence[PackedRequest], token_ids: mx.array | None = None) -> mx.array:
        """The logits [R, V] that the requests want, in order; nothing is evaluated."""
        batch = Batch(requests, self.storage, batch_invariant=self._batch_invariant, token_ids=token_ids)
        return packed_logits(self.model, batch, self.storage, self._blocks)

    def rest(self) -> None:
        """Nothing runs. Pages stay."""

    def forget(self) -> None:
        """Start with new pages: after a step that failed, arrays may be unusable."""
        del self.storage  # there may be no room for both
        mx.clear_cache()
        self.storage = self._new_storage()

    def _new_storage(self) -> PagedStorage:
        size = self._size
        num_pages = 1 if self._grows else size.num_pages
        return PagedStorage(size.layers, num_pages, size.kv_heads, size.page_size, size.head_dim, size.dtype)


def make_runner(
    model: Any, size: PoolSize, *, grows: bool, prefix_cache: bool, batch_invariant: bool
) -> Runner | DenseRunner:
    """What runs the steps of an engine: dense caches where they may grow, and pages have no kernel."""
    if grows and not has_paged_kernel(model):
        return DenseRunner(model, keeps=int(prefix_cache))
    return Runner(model, size, grows=grows, batch_invariant=batch_invariant)
