"""The cache of one request in pages of a pool: growing moves no tokens."""

from __future__ import annotations

from array import array
from contextlib import AbstractContextManager

import mlx.core as mx

from ..checks.types import check_type
from ..errors import ArgumentError
from ..ops.arguments import Mask
from .base import Fetched, PagedKvMetadata, TinyKvCache, check_rewind
from .page_table import PageIds, PageTable
from .pool import TinyKvPagedPool


class TinyKvPagedCache(TinyKvCache):
    """One request, one layer: its pages in order, all full except perhaps the last."""

    def __init__(self, pool: TinyKvPagedPool):
        check_type("TinyKvPagedCache", "pool", pool, TinyKvPagedPool, "a TinyKvPagedPool")
        self.pool = pool
        self.page_size = pool.page_size
        self.pages = PageIds()
        self.page_lens: list[int] = []
        self.offset = 0
        self._table = PageTable()

    @property
    def page_ids(self) -> list[int]:
        """The pages in order, as a new list."""
        return self.pages.ids.tolist()

    @property
    def num_pages(self) -> int:
        return len(self.pages)

    @property
    def key_values(self) -> tuple[mx.array, mx.array] | None:
        """A dense copy of all keys and values [1, H, offset, D]; None if the cache is empty."""
        return self.gather_dense() if self.offset else None

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        """All pages of the pool, including those of other caches."""
        return self.pool.storage

    def append(self, key: mx.array, value: mx.array) -> None:
        """Append key and value [1, H, L, D]."""
        with self.pool.writing():
            self.pool.check_fits(key, value)  # before a page is allocated
            self.extend(key.shape[2])
            self.pool.write_lazily(self.newest_slots(key.shape[2]), key, value)

    def extend(self, count: int) -> None:
        """Take the pages of `count` more tokens, which are to be written next."""
        while count > 0:
            if not self.pages or self.page_lens[-1] == self.page_size:
                self.pages.append(self.pool.allocate_page())
                self.page_lens.append(0)
            added = min(count, self.page_size - self.page_lens[-1])
            self.page_lens[-1] += added
            self.offset += added
            count -= added

    def newest_slots(self, count: int) -> array[int]:
        """The slots of the newest `count` tokens, counted over all pages of the pool."""
        slots = array("q")
        position = self.offset - count
        while position < self.offset:
            number, start = divmod(position, self.page_size)
            stop = min(self.page_size, start + self.offset - position)
            first = self.pages.ids[number] * self.page_size
            slots.extend(range(first + start, first + stop))
            position += stop - start
        return slots

    def update_and_fetch(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        self.append(key, value)
        return *self.gather_dense(), self.offset, mask

    def update_and_fetch_paged(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> PagedKvMetadata:
        self.append(key, value)
        return self.paged_metadata(mask=mask)

    def gather_dense(self) -> tuple[mx.array, mx.array]:
        """A copy of all keys and values [1, H, offset, D] in the order of their tokens."""
        with self.writing():
            pages = self.block_table()[0]
            keys, values = (self._dense(stored[pages]) for stored in stored_pages(self.pool))
            mx.eval(keys, values)  # before the pages are written to again
        return keys, values

    def block_table(self, max_pages: int | None = None) -> mx.array:
        """int32 [1, max_pages]: the pages in order, padded with -1. The same array until the pages change."""
        width = self.num_pages if max_pages is None else max_pages
        if width < self.num_pages:
            raise ArgumentError(
                "TinyKvPagedCache", "max_pages", max_pages, f"at least the {self.num_pages} in use"
            )
        return self._table.get([self.pages], width)

    def context_lens(self) -> mx.array:
        """The number of tokens: int32 [1]."""
        return mx.array([self.offset], dtype=mx.int32)

    def paged_metadata(self, max_pages: int | None = None, mask: Mask = None) -> PagedKvMetadata:
        """The pages of this cache, for `paged_attention`."""
        keys, values = stored_pages(self.pool)
        return PagedKvMetadata(
            keys, values, self.block_table(max_pages), self.context_lens(), self.page_size, mask
        )

    def rewind(self, n: int) -> None:
        check_rewind("TinyKvPagedCache", n, self.offset)
        self.offset -= n
        while n > 0:
            dropped = min(n, self.page_lens[-1])
            self.page_lens[-1] -= dropped
            n -= dropped
            if self.page_lens[-1] == 0:
                self.page_lens.pop()
                self.pool.free_page(self.pages.pop())

    def writing(self) -> AbstractContextManager[list[mx.array]]:
        return self.pool.writing()

    def release(self) -> None:
        self.rewind(self.offset)

    def _dense(self, pages: mx.array) -> mx.array:
        """[n, H, page_size, D] -> [1, H, offset, D]: all pages but the last one are full."""
        return mx.flatten(pages.swapaxes(0, 1), 1, 2)[None, :, : self.offset]


def stored_pages(pool: TinyKvPagedPool) -> tuple[mx.array, mx.array]:
    """Key and value pages [P, H, page_size, D] of a pool that holds tokens."""
    if pool.key_pages is None or pool.value_pages is None:
        raise ArgumentError("TinyKvPagedCache", "", "no tokens yet", "a write before the first read")
    return pool.key_pages, pool.value_pages
