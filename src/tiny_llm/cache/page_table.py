"""The page ids of requests, and the block table that attention reads."""

from array import array
from collections.abc import Sequence

import mlx.core as mx

NO_PAGES = array("i")
ABSENT = array("i", [-1])


class PageIds:
    """The pages of one request, in order. Stored as a flat array, so copying costs no Python objects."""

    def __init__(self) -> None:
        self.words = array("i")
        self.changes = 0  # number of appends and pops

    def __len__(self) -> int:
        return len(self.words)

    @property
    def last(self) -> int:
        return self.words[-1]

    def append(self, page_id: int) -> None:
        self.words.append(page_id)
        self.changes += 1

    def pop(self) -> int:
        self.changes += 1
        return self.words.pop()


class PageTable:
    """The block table of several requests, made again only after a request got or returned a page.

    Each decode step needs it in every layer, and most steps add no page.
    """

    def __init__(self) -> None:
        self._made_of: object = None
        self._table: mx.array | None = None

    def of(self, requests: Sequence[PageIds | None], width: int) -> mx.array:
        """int32 [len(requests), width], read only: the pages of each, padded with -1; None has no page."""
        made_of = width, [(ids, ids.changes) if ids is not None else None for ids in requests]
        if self._table is None or made_of != self._made_of:
            self._made_of, self._table = made_of, _table(requests, width)
        return self._table


def _table(requests: Sequence[PageIds | None], width: int) -> mx.array:
    # Made from numbers in its final shape: an unevaluated graph could be used by this thread only.
    if width == 0:
        return mx.array([[]] * len(requests), dtype=mx.int32)
    words = array("i")
    for ids in requests:
        known = NO_PAGES if ids is None else ids.words
        words += known
        words += ABSENT * (width - len(known))
    cells = memoryview(words).cast("B").cast("i", (len(requests), width))
    return mx.array(cells)  # type: ignore[arg-type]  # takes any buffer
