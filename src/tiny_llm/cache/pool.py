"""Fixed-size pages of keys and values, shared by all layers and requests."""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..checks.types import check_size
from ..errors import ArgumentError
from ..runtime.extension import cpu_kernels
from .base import check_tokens
from .storage import write_slots


class TinyKvPagedPool:
    """Storage for pages of `page_size` tokens, which grows when no freed page is left.

    Keys and values have the type of the first ones written, the activations of the model. On the CPU, tokens
    are written to the memory of the pages, so they show in arrays of the pool that were returned before.
    Threads may share it: pages are taken, freed, read and written under one lock. MLX crashes if two threads
    evaluate graphs that share an array which is still being computed. So `write_lazily`, `make_storage`,
    `replace_storage` and what is computed from `key_pages` and `value_pages` belong in a block of `writing`.
    """

    def __init__(self, page_size: int = 128):
        check_size("TinyKvPagedPool", "page_size", page_size)
        self.page_size = page_size
        self.free_page_ids: list[int] = []
        self.used_page_ids: set[int] = set()
        self.num_allocated_pages = 0
        self._stored: tuple[mx.array, mx.array] | None = None  # each [capacity, H, page_size, D]
        self._lock = RLock()
        self._results: list[mx.array] | None = None  # of the block of `writing` that is open

    @property
    def num_pages(self) -> int:
        """The number of page ids ever made: 0 .. num_pages - 1."""
        return self.num_allocated_pages

    @property
    def num_free_pages(self) -> int:
        return len(self.free_page_ids)

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        """Keys and values with their spare capacity; None before the first write.

        They are evaluated, so they may be used outside a block of `writing`.
        """
        with self._lock:
            if self._stored is not None:
                mx.eval(self._stored)
            return self._stored

    @property
    def key_pages(self) -> mx.array | None:
        """[P, H, page_size, D], not a copy; None before the first write."""
        return self._pages(0)

    @property
    def value_pages(self) -> mx.array | None:
        """[P, H, page_size, D], not a copy; None before the first write."""
        return self._pages(1)

    @contextmanager
    def writing(self) -> Iterator[list[mx.array]]:
        """A block in which no other thread reads or writes.

        At its end its lazy writes are started, and with them the arrays appended to the list: put results
        there that read pages. A block within another one is part of it.
        """
        with self._lock:
            if self._results is not None:
                yield self._results
                return
            self._results = []
            try:
                yield self._results
            finally:
                results, self._results = self._results, None
                self._start_writes(results)

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
        with self._lock:
            page = mx.array([page_id])
            keys, values = (stored[page] for stored in self.storage)  # copies, before the next write
            mx.eval(keys, values)
        return keys, values

    def write_page_slice(self, page_id: int, start: int, key: mx.array, value: mx.array) -> None:
        """Write key and value [1, H, s, D] into the slots from `start` on."""
        with self.writing():
            self._check_used(page_id)
            self.check_fits(key, value)
            stop = start + key.shape[2]
            if start < 0 or stop > self.page_size:
                expected = f"0 to {self.page_size - 1}"
                raise ArgumentError("TinyKvPagedPool", "start", f"slots {start} to {stop - 1}", expected)
            first = page_id * self.page_size
            self.write_lazily(array("q", range(first + start, first + stop)), key, value)

    def write_lazily(self, slots: "array[int]", key: mx.array, value: mx.array) -> None:
        """Write key and value [B, H, L, D], row by row, to `slots`, counted over all pages.

        They are evaluated when read, or after the `writing` block.
        """
        if cpu_kernels(key.dtype) is None:
            # MLX writes in place only to an array with a single reference, and copies it otherwise. The
            # attention of the layer before holds the pool until these are evaluated.
            mx.eval(key, value)
        keys, values = self.make_storage(key.shape[1], key.shape[3], key.dtype)
        where = mx.array(slots)  # type: ignore[arg-type]  # takes any buffer
        self.replace_storage(*write_slots(keys, values, _rows(key), _rows(value), where))

    def make_storage(self, heads: int, size: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        """Keys and values with their spare capacity, made now if these are the first to be written."""
        if self._stored is None:
            shape = (self.num_pages, heads, self.page_size, size)
            self._stored = mx.zeros(shape, dtype), mx.zeros(shape, dtype)
        return self._stored

    def replace_storage(self, keys: mx.array, values: mx.array) -> None:
        """Keys and values from `make_storage` after an operation has written to them."""
        self._stored = keys, values

    def check_fits(self, key: mx.array, value: mx.array) -> None:
        """Check for one row [1, H, s, D] with the heads, head size and dtype of the first write."""
        check_tokens("TinyKvPagedPool", key, value)
        if key.shape[0] != 1:
            raise ArgumentError("TinyKvPagedPool", "key", key.shape, "one row (1, H, L, D)")
        self.check_shape(key.shape, key.dtype)

    def check_shape(self, tokens: tuple[int, ...], dtype: mx.Dtype) -> None:
        """Check tokens of this shape, [B, H, L, D], for the heads, head size and dtype of the first write."""
        if self._stored is not None:
            pages = self._stored[0]
            expected = (tokens[0], pages.shape[1], tokens[2], pages.shape[3])
            if tokens != expected or dtype != pages.dtype:
                raise ArgumentError(
                    "TinyKvPagedPool",
                    "key",
                    f"{tokens} {dtype_name(dtype)}",
                    f"{expected} {dtype_name(pages.dtype)} as the first one written",
                )

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy, which gets its own memory, because pages are written in place."""
        with self._lock:
            state = {
                **vars(self),
                "free_page_ids": [*self.free_page_ids],
                "used_page_ids": {*self.used_page_ids},
            }
            if self._stored is not None:
                keys, values = (stored[mx.arange(len(stored))] for stored in self._stored)
                mx.eval(keys, values)
                state["_stored"] = keys, values
        del state["_lock"]
        return {**state, "_results": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
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
                self._start_writes()

    def _start_writes(self, results: Sequence[mx.array] = ()) -> None:
        """Start all writes, and `results`: only the thread that made a graph can, but others can wait."""
        if self._stored is None:
            return
        if cpu_kernels(self._stored[0].dtype) is None:
            mx.eval(self._stored, results)  # MLX copies an array that is written before it has been read
        else:
            mx.async_eval(self._stored, results)  # type: ignore[no-untyped-call]


def _rows(tokens: mx.array) -> mx.array:
    """[B, H, L, D] -> the tokens row by row, [B * L, H, D]."""
    return mx.flatten(tokens.swapaxes(1, 2), 0, 1)
