"""Which pages of keys and values are used, how many owners each has, and which free page is used next.

Pure Python: the arrays with the content are stored elsewhere, at the same page ids.
"""

from ..checks.types import check_size
from ..errors import ArgumentError


class PagePool:
    """Ids 0 .. num_pages - 1 of pages of `page_size` tokens, each with the number of its owners.

    A page without owner is free: blank, or cached. The content of a cached page is still wanted, so it can be
    shared again, until `allocate` takes the page: blank pages first, then the least recently used cached one.
    """

    def __init__(self, num_pages: int, page_size: int):
        check_size("PagePool", "num_pages", num_pages)
        check_size("PagePool", "page_size", page_size)
        self.num_pages = num_pages
        self.page_size = page_size
        self._owners = [0] * num_pages
        self._blank = list(range(num_pages - 1, -1, -1))  # a stack: the lowest ids are taken first
        self._cached: dict[int, None] = {}  # in the order of their release

    @property
    def num_free(self) -> int:
        return len(self._blank) + len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_pages - self.num_free

    def owners(self, page: int) -> int:
        """The number of owners; 0 for a free page."""
        self._check_id(page)
        return self._owners[page]

    def pages_for(self, num_tokens: int) -> int:
        """The number of pages that hold so many tokens."""
        return -(-num_tokens // self.page_size)

    def allocate(self) -> int:
        """Take a free page, with one owner. Its content is stale."""
        if self._blank:
            page = self._blank.pop()
        elif self._cached:
            page = next(iter(self._cached))
            del self._cached[page]
        else:
            raise ArgumentError("PagePool", "allocate", "a pool without a free page", "num_free above 0")
        self._owners[page] = 1
        return page

    def has_content(self, page: int) -> bool:
        """Whether the page can be shared: it is used, or free and cached."""
        return self.owners(page) > 0 or page in self._cached

    def share(self, page: int) -> None:
        """Add an owner to a used page, or to a free one that is cached."""
        if not self.has_content(page):
            raise ArgumentError("PagePool", "share", f"the blank page {page}", "a page with content")
        self._cached.pop(page, None)
        self._owners[page] += 1

    def release(self, page: int, keep: bool = False) -> None:
        """Remove an owner. With `keep`, a page that becomes free is reused after all that are free now."""
        if self.owners(page) == 0:
            raise ArgumentError("PagePool", "release", f"the free page {page}", "a page with an owner")
        self._owners[page] -= 1
        if self._owners[page] == 0:
            if keep:
                self._cached[page] = None
            else:
                self._blank.append(page)

    def blank(self, page: int) -> None:
        """Nobody wants the content of a page any more: if it is cached, it becomes blank."""
        self._check_id(page)
        if page in self._cached:
            del self._cached[page]
            self._blank.append(page)

    def check(self) -> None:
        """Raise AssertionError unless each page is in one state: used, blank or cached."""
        free = [*self._blank, *self._cached]
        assert len(set(free)) == len(free), f"a page is free twice: {sorted(free)}"
        used = {page for page, owners in enumerate(self._owners) if owners > 0}
        assert min(self._owners) >= 0, f"a page has fewer than no owners: {self._owners}"
        assert used.isdisjoint(free), f"pages are used and free: {used.intersection(free)}"
        assert used.union(free) == set(range(self.num_pages)), "a page is lost"
        assert len(used) == self.num_used, f"num_used is {self.num_used}, but {len(used)} pages have owners"

    def _check_id(self, page: int) -> None:
        if not 0 <= page < self.num_pages:  # a negative index would count from the end
            raise ArgumentError("PagePool", "page", page, f"0 to {self.num_pages - 1}")
