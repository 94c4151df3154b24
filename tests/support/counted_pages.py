"""Pages that are only counted, for tests of the scheduler that are not about pages."""

from tiny_llm.cache.pages import PagePool
from tiny_llm.scheduler import RequestState


class CountedPages:
    """In the place of PageAllocator, whose methods are tasks of week 4, day 3. A page has 4 tokens."""

    def __init__(self, free: int = 100):
        self.pool = PagePool(num_pages=1, page_size=4)  # tells the size of a page, and is not used otherwise
        self.free = free
        self.spares: list[int] = []  # what the starts asked for
        # What `commit` called, for which request, and how many of its tokens were computed then.
        self.calls: list[tuple[str, str, int]] = []

    def start(self, state: RequestState, spare: int) -> bool:
        self.spares.append(spare)
        needed = -(-len(state.token_ids) // 4)
        if self.free - needed < spare:
            return False
        self.free -= needed
        state.pages.extend(range(needed))
        return True

    def copy_beginning(self, state: RequestState) -> None:
        """No page has tokens."""

    def grow(self, state: RequestState, copies: list[tuple[int, int]]) -> bool:
        return True

    def grow_for_drafts(self, state: RequestState, wanted: int) -> int:
        return wanted

    def shrink(self, state: RequestState) -> None:
        self.calls.append(("shrink", state.id, state.computed))

    def register(self, state: RequestState) -> None:
        self.calls.append(("register", state.id, state.computed))

    def check_fits(self, state: RequestState) -> None:
        """Every request fits."""

    def share(self, state: RequestState) -> None:
        """Owners are not counted."""

    def release(self, state: RequestState) -> None:
        """Pages do not come back."""
