"""The pages of requests: how they start, grow, fork, shrink and go back to the pool."""

from collections import Counter
from collections.abc import Iterable

from ..cache.pages import PagePool
from ..cache.prefix_index import PrefixIndex
from ..errors import ArgumentError
from .request import RequestState

Copies = list[tuple[int, int]]


class PageAllocator:
    """Gives pages of one pool to requests, and finds pages that hold the same tokens already."""

    def __init__(self, pool: PagePool, index: PrefixIndex | None):
        self.pool = pool
        self._index = index

    def check_fits(self, state: RequestState) -> None:
        """Raise ArgumentError if all pages together do not hold the request with its longest answer."""
        room = self.pool.num_pages * self.pool.page_size
        prompt = len(state.prompt_ids)
        if prompt > room:
            raise ArgumentError(
                "Scheduler.add", "prompt_ids", f"{prompt} tokens", f"at most {room}, the room of all pages"
            )
        if state.longest > room:
            most = f"at most {room - prompt + 1} after this prompt, the room of all pages"
            raise ArgumentError("Scheduler.add", "max_tokens", state.max_tokens, most)

    def start(self, state: RequestState, spare: int) -> bool:
        """Give a waiting request pages for all its tokens; False if fewer than `spare` pages stayed free.

        Its first tokens may be in cached pages. At least the last token is left to compute, because its
        logits are needed.
        """
        pool, total = self.pool, len(state.token_ids)
        if pool.num_free <= spare:  # at least the page of the last token is new: no need to search
            return False
        found: list[int] = []
        if self._index is not None and not state.needs_prompt_logprobs:  # cached pages have no logits
            num_pages = (total - 1) // pool.page_size
            found = self._index.find(state.page_hashes, state.token_ids, num_pages, state.salt)
        new = pool.pages_for(total) - len(found)
        revived = sum(pool.owners(page) == 0 for page in found)
        if pool.num_free - revived - new < spare:
            return False
        for page in found:  # before the first allocation, which could take one of them
            pool.share(page)
        state.pages.extend(found)
        state.computed = len(found) * pool.page_size
        state.registered = len(found)
        self._allocate(state, new)
        return True

    def copy_beginning(self, state: RequestState) -> None:
        """After `start`: find a cached page that begins like the first new one. The plan copies its tokens.

        The cached page stays as it is. It is never a new page of the request: the index forgot those.
        """
        state.beginning = None
        if self._index is None or state.needs_prompt_logprobs:
            return
        number, last = state.registered, len(state.token_ids) - 1  # the last token is computed
        found = self._index.find_beginning(state.page_hashes, state.token_ids, number, last, state.salt)
        if found is not None:
            page, common = found
            state.beginning = page, state.pages[number]
            state.computed += common

    def grow(self, state: RequestState, copies: Copies, ahead: int = 0) -> bool:
        """Make room for the next token, in a page without other owners; False if no page is free for that.

        With `ahead`, for the one so many tokens later.
        """
        number = (state.computed + ahead) // self.pool.page_size
        is_there = number < len(state.pages)
        if is_there and self.pool.owners(state.pages[number]) == 1:
            return True
        if self.pool.num_free == 0:
            return False
        page = self._take()
        if is_there:  # copy on write
            old, state.pages[number] = state.pages[number], page
            self._give_back(old)
            copies.append((old, page))
        else:
            state.pages.append(page)
        return True

    def grow_for_drafts(self, state: RequestState, wanted: int) -> int:
        """Make room for up to `wanted` drafts after the next token; return for how many there is."""
        pool, total = self.pool, len(state.token_ids)
        number = min(wanted, (len(state.pages) + pool.num_free) * pool.page_size - total)
        self._allocate(state, pool.pages_for(total + number) - len(state.pages))
        return number

    def shrink(self, state: RequestState) -> None:
        """Give back the pages without a computed token: those of rejected drafts."""
        keep = self.pool.pages_for(state.computed)
        while len(state.pages) > keep:
            self._give_back(state.pages.pop())

    def register(self, state: RequestState) -> None:
        """Make the pages that are full now findable."""
        full = state.computed // self.pool.page_size
        if self._index is not None:
            for number in range(state.registered, full):
                page = state.pages[number]
                self._index.register(page, state.page_hashes, state.token_ids, number, state.salt)
                if page in self._index:  # or another page has the same tokens
                    self._remember(state, (number + 1) * self.pool.page_size)
        state.registered = full

    def share(self, state: RequestState) -> None:
        """Count a fork as an owner of its pages."""
        for page in state.pages:
            self.pool.share(page)

    def release(self, state: RequestState) -> None:
        """Give back all pages, the last one first: the end of a prefix is useless without its beginning."""
        self._keep_end(state)
        while state.pages:
            self._give_back(state.pages.pop())
        state.computed = 0

    def forget(self) -> None:
        """No free page has a content that can be found."""
        if self._index is not None:
            for page in list(self._index):
                self._forget(page)

    def forget_copies(self, copies: Iterable[tuple[int, int]]) -> None:
        """The targets may not have been written: they cannot be found."""
        for _, page in copies:
            self._forget(page)

    def check(self, owners: Iterable[RequestState]) -> None:
        """Raise AssertionError unless the owners of each page are the requests that list it."""
        self.pool.check()
        listed = Counter(page for state in owners for page in state.pages)
        for page in range(self.pool.num_pages):
            owned = self.pool.owners(page)
            assert owned == listed[page], f"page {page} has {owned} owners, but {listed[page]} list it"
        if self._index is not None:
            self._index.check()
            blank = [page for page in self._index if not self.pool.has_content(page)]
            assert blank == [], f"the prefix index finds blank pages: {blank}"

    def _allocate(self, state: RequestState, number: int) -> None:
        for _ in range(number):
            state.pages.append(self._take())

    def _keep_end(self, state: RequestState) -> None:
        """Make the computed tokens after the last full page findable."""
        if state.computed % self.pool.page_size:
            self._remember(state, state.computed)

    def _remember(self, state: RequestState, stop: int) -> None:
        """Make the page of the last of `stop` computed tokens the newest one after those before it."""
        if self._index is None:
            return
        page = state.pages[(stop - 1) // self.pool.page_size]
        replaced = self._index.remember(page, state.page_hashes, state.token_ids, stop, state.salt)
        if replaced is not None:
            self.pool.blank(replaced)

    def _forget(self, page: int) -> None:
        if self._index is not None:
            self._index.forget(page)
            self.pool.blank(page)

    def _take(self) -> int:
        page = self.pool.allocate()
        if self._index is not None:
            self._index.forget(page)
        return page

    def _give_back(self, page: int) -> None:
        self.pool.release(page, keep=self._index is not None and page in self._index)
