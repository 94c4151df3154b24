"""The interface of all caches: append the keys and values of new tokens, return those of all tokens."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import mlx.core as mx

from ..checks.arrays import check_arrays, check_same_dtype
from ..errors import ArgumentError, UnsupportedError
from ..ops.arguments import Mask

Fetched = tuple[mx.array, mx.array, int | None, Mask]


@dataclass
class PagedKvMetadata:
    """The arguments of `paged_attention` for B rows, in the place of dense keys and values.

    key_pages, value_pages [P, H, page_size, D]; block_table [B, max_pages] int32, the pages of each row in
    order, padded with -1; context_lens [B] int32, the number of tokens of each row. The block table is shared
    with the cache, so it must not be written.
    """

    key_pages: mx.array
    value_pages: mx.array
    block_table: mx.array
    context_lens: mx.array
    page_size: int
    mask: Mask = None


class TinyKvCache(ABC):
    """Keys and values of one layer; `offset` counts the tokens of a cache of one request."""

    offset: int = 0

    @property
    def key_values(self) -> tuple[mx.array, mx.array] | None:
        """All keys and values [B, H, S, D]; None if the cache is empty."""
        return None

    @property
    def storage(self) -> tuple[mx.array, mx.array] | None:
        """The arrays that hold keys and values, without a copy; H is axis 1, D the last axis."""
        return self.key_values

    @abstractmethod
    def update_and_fetch(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        """Append key and value [B, H, L, D]; return all keys, all values, their number, and the mask."""

    def update_and_fetch_paged(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> PagedKvMetadata:
        """Append key and value [B, H, L, D]; return the pages of all tokens."""
        raise UnsupportedError(
            type(self).__name__, "", "a call for pages", "a cache that keeps its tokens in pages"
        )

    def writing(self) -> AbstractContextManager[list[mx.array]]:
        """A block that writes to shared storage, locked against other threads.

        Append results to the list that read the storage: they are started before other threads go on.
        """
        return nullcontext([])

    def rewind(self, n: int) -> None:
        """Remove the newest n tokens."""
        raise UnsupportedError(type(self).__name__, "rewind", n, "a cache that can be rewound")

    def release(self) -> None:  # noqa: B027 - most caches share no storage
        """Return what this cache holds of shared storage."""


class NoCache(TinyKvCache):
    """Stores nothing: every call brings the whole sequence."""

    def update_and_fetch(
        self, key: mx.array, value: mx.array, mask_length: int | None = None, mask: Mask = None
    ) -> Fetched:
        return key, value, key.shape[2], mask


def check_tokens(cache: str, key: mx.array, value: mx.array) -> None:
    """Both [B, H, L, D] with at least one token and of one type."""
    check_arrays(cache, key=key, value=value)
    if key.ndim != 4 or key.size == 0:
        raise ArgumentError(cache, "key", key.shape, "(B, H, L, D) with at least one token")
    if value.shape != key.shape:
        raise ArgumentError(cache, "value", value.shape, f"{key.shape}, the shape of key")
    check_same_dtype(cache, "value", value.dtype, key.dtype, "key")


def check_batch_mask(cache: str, mask: Mask) -> None:
    """A batch knows its own mask."""
    if isinstance(mask, mx.array):
        raise UnsupportedError(cache, "mask", "an array", "None or 'causal'")
    if mask not in (None, "causal"):
        raise ArgumentError(cache, "mask", repr(mask), "None or 'causal'")


def check_slot(cache: str, slot: int, slots: int) -> None:
    """The number of a slot of a batch."""
    if not 0 <= slot < slots:
        raise ArgumentError(cache, "id", slot, f"0 to {slots - 1}")


def check_slot_length(cache: str, slot: int, length: int, max_seq_len: int) -> None:
    """The tokens of one request of a batch."""
    if length > max_seq_len:
        raise ArgumentError(
            cache, "id", f"{length} tokens for slot {slot}", f"at most max_seq_len, {max_seq_len}"
        )


def check_rewind(cache: str, n: int, offset: int) -> None:
    if not 0 <= n <= offset:
        raise ArgumentError(cache, "rewind", n, f"0 to {offset}, the number of tokens")
