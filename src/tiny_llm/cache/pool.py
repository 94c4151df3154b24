"""Fixed-size pages of keys and values, shared by all layers and requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..checks.types import check_size
from ..errors import ArgumentError
from .base import check_tokens


class TinyKvPagedPool:
    """Storage for pages of `page_size` tokens, which grows when no freed page is left.

    Thread-safe: every method, and every block of `writing`, holds one lock.
    """

    def __init__(self, page_size: int = 128):
        check_size("TinyKvPagedPool", "page_size", page_size)
        self.page_size = page_size
        self.free_page_ids: list[int] = []
        self.used_page_ids: set[int] = set()
        self.num_allocated_pages = 0
        self._stored: tuple[mx.array, mx.array] | None = None  # each [capacity, H, page_size, D]
        self._lock = RLock()

    @property
    def num_pages(self) -> int:
        """The number of page ids ever made: 0 .. num_pages - 1."""
        return self.num_allocated_pages

    @property
    def num_free_pages(self) -> int:
        return len(self.free_page_ids)

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values with their spare capacity; None before the first write."""
        with self._lock:  # graphs that another thread has not evaluated yet cannot be used here
            return self._stored

    @property
    def key_pages(self) -> mx.array | None:
        """[P, H, page_size, D]; None before the first write."""
        return self._pages(0)

    @property
    def value_pages(self) -> mx.array | None:
        """[P, H, page_size, D]; None before the first write."""
        return self._pages(1)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A block in which no other thread reads or writes; its lazy writes are evaluated at the end."""
        with self._lock:
            try:
                yield
            finally:
                self.evaluate_writes()

    def allocate_page(self) -> int:
        """Take a free page, or make a new one. Its content is stale."""
        with self._lock:
            if self.free_page_ids:
                page_id = self.free_page_ids.pop()
            else:
                page_id = self.num_allocated_pages
                self.num_allocated_pages += 1
                self._grow()
            self.used_page_ids.add(page_id)
            return page_id

    def free_page(self, page_id: int) -> None:
        """Return a page to the pool. A page that is free already is an ArgumentError."""
        with self._lock:
            self._check_used(page_id)
            self.used_page_ids.remove(page_id)
            self.free_page_ids.append(page_id)

    def read_page(self, page_id: int) -> tuple[mx.array, mx.array]:
        """Keys and values of a page, each [1, H, page_size, D], including unused slots."""
        if self.storage is None:
            raise ArgumentError("TinyKvPagedPool", "page_id", page_id, "a write before the first read")
        if not 0 <= page_id < self.num_pages:
            raise ArgumentError("TinyKvPagedPool", "page_id", page_id, f"0 to {self.num_pages - 1}")
        keys, values = self.storage
        return keys[page_id][None], values[page_id][None]

    def write_page_slice(self, page_id: int, start: int, key: mx.array, value: mx.array) -> None:
        """Write key and value [1, H, s, D] into the slots from `start` on."""
        with self.writing():
            self.write_lazily(page_id, start, key, value)

    def write_lazily(self, page_id: int, start: int, key: mx.array, value: mx.array) -> None:
        """Like `write_page_slice`, but evaluated when read, or at the end of the `writing` block."""
        self._check_used(page_id)
        self.check_fits(key, value)
        stop = start + key.shape[2]
        if start < 0 or stop > self.page_size:
            raise ArgumentError(
                "TinyKvPagedPool", "start", f"slots {start} to {stop - 1}", f"0 to {self.page_size - 1}"
            )
        if self._stored is None:
            _, heads, _, size = key.shape
            shape = (self.num_pages, heads, self.page_size, size)
            self._stored = mx.zeros(shape, key.dtype), mx.zeros(shape, key.dtype)
        keys, values = self._stored
        keys[page_id, :, start:stop] = key[0]
        values[page_id, :, start:stop] = value[0]
        self._stored = keys, values

    def evaluate_writes(self) -> None:
        """Evaluate all writes: only the thread that made a graph can evaluate it."""
        mx.eval(self._stored)

    def check_fits(self, key: mx.array, value: mx.array) -> None:
        """Check for one row [1, H, s, D] with the heads, head size and dtype of the first write."""
        check_tokens("TinyKvPagedPool", key, value)
        if key.shape[0] != 1:
            raise ArgumentError("TinyKvPagedPool", "key", key.shape, "one row (1, H, L, D)")
        if self._stored is not None:
            pages = self._stored[0]
            expected = (1, pages.shape[1], key.shape[2], pages.shape[3])
            if key.shape != expected or key.dtype != pages.dtype:
                raise ArgumentError(
                    "TinyKvPagedPool",
                    "key",
                    f"{key.shape} {dtype_name(key.dtype)}",
                    f"{expected} {dtype_name(pages.dtype)} as the first one written",
                )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy gets its own lock."""
        vars(self).update(state, _lock=RLock())

    def _pages(self, which: int) -> mx.array | None:
        with self._lock:
            return None if self._stored is None else self._stored[which][: self.num_pages]

    def _check_used(self, page_id: int) -> None:
        if page_id not in self.used_page_ids:
            raise ArgumentError("TinyKvPagedPool", "page_id", page_id, "a page in use")

    def _grow(self) -> None:
        """Make storage for all pages. The capacity doubles, so each page is copied about once."""
        if self._stored is not None:
            keys, values = self._stored
            capacity = keys.shape[0]
            if self.num_pages > capacity:
                more = [(0, capacity), (0, 0), (0, 0), (0, 0)]
                self._stored = mx.pad(keys, more), mx.pad(values, more)
                self.evaluate_writes()


def eval_kv(key: mx.array, value: mx.array) -> tuple[mx.array, mx.array]:
    """Evaluate and return both, so that their graph no longer holds the arrays of the pool.

    MLX writes in place only to an array with a single reference, and copies it otherwise. The unevaluated
    attention of the layer before holds the pool, and the new keys and values depend on that attention.
    """
    mx.eval(key, value)
    return key, value
