"""The pages of requests, in order, and the table of them that attention reads."""

from array import array
from collections.abc import Sequence

import mlx.core as mx

NO_PAGES = array("i")
ABSENT = array("i", [-1])


class PageIds:
    """The pages of one request, as words in memory: Python copies them to a table and counts none of them."""

    def __init__(self) -> None:
        self.words = array("i")
        self.changes = 0  # how many pages ever came or went

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
    """An int32 array of several requests' pages, kept as long as none of them gets or gives back a page.

    Decoding asks for it in each layer and for each token, and most tokens take no page.
    """

    def __init__(self) -> None:
        self._made_of: object = None
        self._table: mx.array | None = None

    def of(self, requests: Sequence[PageIds | None], width: int) -> mx.array:
        """[len(requests), width]: the pages of each in order, then -1; None has no page. To be read only."""
        made_of = width, [(ids, ids.changes) if ids is not None else None for ids in requests]
        if self._table is None or made_of != self._made_of:
            self._made_of, self._table = made_of, _table(requests, width)
        return self._table


def _table(requests: Sequence[PageIds | None], width: int) -> mx.array:
    # Made of numbers, with both axes from the start: a graph would belong to the thread that made it.
    if width == 0:
        return mx.array([[]] * len(requests), dtype=mx.int32)
    words = array("i")
    for ids in requests:
        known = NO_PAGES if ids is None else ids.words
        words += known
        words += ABSENT * (width - len(known))
    cells = memoryview(words).cast("B").cast("i", (len(requests), width))
    return mx.array(cells)  # type: ignore[arg-type]  # takes any buffer
