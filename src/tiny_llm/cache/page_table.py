"""The page ids of requests, and the block table that attention reads."""

from array import array
from collections.abc import Sequence

import mlx.core as mx

NO_PAGES = array("i")
PADDING = array("i", [-1])


class PageIds:
    """The pages of one request, in order. Stored as a flat array, so copying costs no Python objects."""

    def __init__(self) -> None:
        self.ids = array("i")
        self.version = 0  # number of appends and pops

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def last(self) -> int:
        return self.ids[-1]

    def append(self, page_id: int) -> None:
        self.ids.append(page_id)
        self.version += 1

    def pop(self) -> int:
        self.version += 1
        return self.ids.pop()


class PageTable:
    """The block table of several requests, rebuilt only after a request got or returned a page.

    Each decode step needs it in every layer, and most steps add no page.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._table: mx.array | None = None

    def get(self, requests: Sequence[PageIds | None], width: int) -> mx.array:
        """int32 [len(requests), width], read only: the pages of each, padded with -1; None has no page."""
        key = width, [(ids, ids.version) if ids is not None else None for ids in requests]
        if self._table is None or key != self._key:
            self._key, self._table = key, _table(requests, width)
        return self._table


def _table(requests: Sequence[PageIds | None], width: int) -> mx.array:
    # Made from numbers in its final shape: an unevaluated graph could be used by this thread only.
    if width == 0:
        return mx.array([[]] * len(requests), dtype=mx.int32)
    words = array("i")
    for ids in requests:
        pages = NO_PAGES if ids is None else ids.ids
        words += pages
        words += PADDING * (width - len(pages))
    cells = memoryview(words).cast("B").cast("i", (len(requests), width))
    return mx.array(cells)  # type: ignore[arg-type]  # takes any buffer
