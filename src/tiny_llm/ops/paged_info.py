"""The block table, contexts and new tokens of a step over pages, checked once for all layers."""

from array import array
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import mlx.core as mx

from ..checks.types import check_size
from ..errors import ArgumentError
from .host_integers import Integers, read_cumulative, read_integers, read_list, table_to_mlx, to_mlx

NAME = "PagedInfo"
EVICTED = -1


class PagedInfo:
    """A step of a server: `paged_attention` takes it in the place of block_table.

    block_table: the pages of each sequence: a list of lists of any lengths, or an array of NumPy or MLX.
        Pages before a window that are gone are -1; what follows the pages of the context is not read.
    context_lens: the tokens of each sequence, the new ones included
    page_size: the slots of a page
    cu_seqlens_q: the first new token of each sequence, and the number of all; by default each sequence has
        one new token
    num_pages: the pages of the pool. With it, an id outside of the pool is refused here; without, at the
        first call
    check: True requires num_pages

    >>> import mlx.core as mx
    >>> import tiny_llm
    >>> info = tiny_llm.PagedInfo([[4, 1], [0]], [20, 7], 16, [0, 5, 6], num_pages=6)
    >>> info.slot_mapping.tolist()  # five tokens after a prefix of 15, and one after 6
    [79, 16, 17, 18, 19, 6]
    >>> key_pages, value_pages = mx.zeros((6, 16, 2, 64)), mx.zeros((6, 16, 2, 64))
    >>> query, key, value = mx.ones((6, 4, 64)), mx.ones((6, 2, 64)), mx.ones((6, 2, 64))
    >>> for _ in range(2):  # layers of a model
    ...     key_pages, value_pages = tiny_llm.store_kvcache(
    ...         key, value, key_pages, value_pages, info.slot_mapping
    ...     )
    ...     query = tiny_llm.paged_attention(query, key_pages, value_pages, info, layout="PSHE", causal=True)
    >>> query.shape
    (6, 4, 64)

    Made once for a step: a call with it checks and waits for nothing, so its arrays must not be written to.
    Its fields:
    block_table [B, max_pages], padded with -1, context_lens [B] and cu_seqlens_q [B + 1], int32 arrays
    slot_mapping [T], an int64 array: the slot of each new token, page * page_size + its place in the page; -1
        where a sequence has more new tokens than its context, such as an idle one with a context of 0
    page_size, and num_sequences, and num_tokens, the number of new tokens
    """

    __slots__ = (
        "_block_table", "_context_lens", "_cu_seqlens_q", "_evicted", "_last_page", "_num_tokens",
        "_page_size", "_slot_mapping",
    )  # fmt: skip

    def __init__(
        self,
        block_table: Integers | Sequence[Integers],
        context_lens: Integers,
        page_size: int,
        cu_seqlens_q: Integers | None = None,
        *,
        num_pages: int | None = None,
        check: bool = False,
    ):
        check_size(NAME, "page_size", page_size)
        if num_pages is not None:
            check_size(NAME, "num_pages", num_pages, minimum=0)
        elif check:
            raise ArgumentError(NAME, "num_pages", None, "the pages of the pool, because check is True")
        contexts = read_integers(NAME, "context_lens", context_lens)
        count = len(contexts)
        rows = read_list(NAME, "block_table", block_table)
        if len(rows) != count:
            expected = f"{count}, as in context_lens"
            raise ArgumentError(NAME, "block_table", f"{len(rows)} sequences", expected)
        begins = array("i", range(count + 1))
        if cu_seqlens_q is not None:
            begins = read_cumulative(NAME, "cu_seqlens_q", cu_seqlens_q)
        if len(begins) != count + 1:
            expected = f"{count + 1}, one more than the sequences of block_table"
            raise ArgumentError(NAME, "cu_seqlens_q", f"{len(begins)} numbers", expected)

        used = [
            _used_pages(b, row, context, page_size)
            for b, (row, context) in enumerate(zip(rows, contexts, strict=True))
        ]
        slots = array("q")
        for b, pages in enumerate(used):
            slots.extend(_new_slots(b, pages, contexts[b], begins[b + 1] - begins[b], page_size))
        width = max(map(len, used), default=0)
        cells = array("i")
        for pages in used:
            cells += pages
            cells += array("i", [EVICTED]) * (width - len(pages))
        self._block_table = table_to_mlx(cells, count, width)
        self._context_lens = to_mlx(contexts)
        self._cu_seqlens_q = to_mlx(begins)
        self._slot_mapping = to_mlx(slots)
        self._page_size = page_size
        self._num_tokens = begins[-1]
        self._evicted = any(pages and pages[0] == EVICTED for pages in used)
        self._last_page = max(cells, default=EVICTED)
        if num_pages is not None:
            self.check_pool(NAME, num_pages)

    def check_pool(self, operation: str, num_pages: int) -> None:
        """Whether a pool of that many pages has all pages of the table."""
        if self._last_page < num_pages:
            return
        rows: Any = self._block_table.tolist()
        for b, row in enumerate(rows):
            for place, page in enumerate(row):
                if page >= num_pages:
                    raise _no_page(operation, page, place, b, f"0 to {num_pages - 1}")

    def native_arguments(self, options: dict[str, Any]) -> tuple[mx.array, mx.array]:
        """Table and contexts for the native function; adds to its options."""
        options["cu_seqlens_q"] = self._cu_seqlens_q
        options["ids_checked"] = not self._evicted  # which of those a query sees depends on its window
        return self._block_table, self._context_lens

    # Copies share their memory, but an assignment to an element of one does not reach the checked numbers.
    @property
    def block_table(self) -> mx.array:
        return copy(self._block_table)

    @property
    def context_lens(self) -> mx.array:
        return copy(self._context_lens)

    @property
    def cu_seqlens_q(self) -> mx.array:
        return copy(self._cu_seqlens_q)

    @property
    def slot_mapping(self) -> mx.array:
        return copy(self._slot_mapping)

    @property
    def page_size(self) -> int:
        return self._page_size

    @property
    def num_sequences(self) -> int:
        return len(self._context_lens)

    @property
    def num_tokens(self) -> int:
        return self._num_tokens


def _used_pages(b: int, row: Any, context: int, page_size: int) -> "array[int]":
    """The pages of the context of sequence b: evicted ones, then pages that exist."""
    pages = read_list(NAME, f"block_table[{b}]", row)
    if not 0 <= context <= len(pages) * page_size:
        expected = f"0 to the {len(pages) * page_size} slots of its row of block_table"
        raise ArgumentError(NAME, "context_lens", f"{context} for sequence {b}", expected)
    used = read_integers(NAME, f"block_table[{b}]", pages[: -(-context // page_size)])
    if used and min(used) < 0:
        first = next((place for place, page in enumerate(used) if page != EVICTED), len(used))
        for place in range(first, len(used)):
            if used[place] < 0:
                raise _no_page(NAME, used[place], place, b, "a page of the pool; only the first may be -1")
    return used


def _new_slots(b: int, pages: "array[int]", context: int, new: int, page_size: int) -> Iterator[int]:
    """The slots of the last `new` tokens of the context."""
    position = context - new
    while position < 0:
        yield -1
        position += 1
    while position < context:
        place, offset = divmod(position, page_size)
        if pages[place] == EVICTED:
            raise _no_page(NAME, EVICTED, place, b, "a page of the pool, because new tokens go there")
        end = min(page_size, offset + context - position)
        yield from range(pages[place] * page_size + offset, pages[place] * page_size + end)
        position += end - offset


def _no_page(operation: str, page: int, place: int, b: int, expected: str) -> ArgumentError:
    return ArgumentError(operation, "block_table", f"{page} for page {place} of sequence {b}", expected)
