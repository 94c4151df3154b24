"""Pages of the pool: one state each, as many owners as were counted, and reused in the right order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tiny_llm.cache.pages import PagePool


class PoolCalls(RuleBasedStateMachine):
    """Random calls, compared with a list of the owners of each page and one of the free pages in order."""

    @initialize(num_pages=st.integers(1, 6))
    def make(self, num_pages: int) -> None:
        self.pool = PagePool(num_pages, page_size=4)
        self.owned: list[int] = []  # a page for each owner
        self.kept: list[int] = []

    @precondition(lambda self: self.pool.num_free)
    @rule()
    def allocate(self) -> None:
        blank = set(range(self.pool.num_pages)) - {*self.owned, *self.kept}
        page = self.pool.allocate()
        if blank:
            assert page in blank
        else:
            assert page == self.kept.pop(0)
        self.owned.append(page)

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), keep=st.booleans())
    def release(self, data: st.DataObject, keep: bool) -> None:
        page = data.draw(st.sampled_from(self.owned))
        self.pool.release(page, keep)
        self.owned.remove(page)
        if page not in self.owned and keep:
            self.kept.append(page)

    @precondition(lambda self: self.owned or self.kept)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted({*self.owned, *self.kept})))
        self.pool.share(page)
        self.owned.append(page)
        if page in self.kept:
            self.kept.remove(page)

    @invariant()
    def owners_are_counted(self) -> None:
        self.pool.check()
        pages = range(self.pool.num_pages)
        assert [self.pool.owners(page) for page in pages] == [self.owned.count(page) for page in pages]
        assert self.pool.num_used == len(set(self.owned))
        assert self.pool.num_free == self.pool.num_pages - self.pool.num_used
        found = [page for page in pages if self.pool.has_content(page)]
        assert found == sorted({*self.owned, *self.kept})


TestPoolCalls = PoolCalls.TestCase
TestPoolCalls.settings = settings(max_examples=50, stateful_step_count=30)


def test_a_double_free_is_refused_and_changes_nothing() -> None:
    pool = PagePool(2, 4)
    page = pool.allocate()
    pool.release(page)
    with pytest.raises(ValueError, match=r"PagePool: release: got the free page 0, expected a page with"):
        pool.release(page)
    assert pool.num_free == 2
    pool.check()


def test_an_exhausted_pool_and_wrong_pages_are_refused() -> None:
    pool = PagePool(1, 4)
    with pytest.raises(ValueError, match="share: got the blank page 0, expected a page with content"):
        pool.share(0)
    pool.allocate()
    with pytest.raises(ValueError, match="allocate: got a pool without a free page"):
        pool.allocate()
    for page in (-1, 1):
        with pytest.raises(ValueError, match=f"page: got {page}, expected 0 to 0"):
            pool.release(page)


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 4), (4, 0)])
def test_a_pool_without_room_is_refused(num_pages: int, page_size: int) -> None:
    with pytest.raises(ValueError, match="got 0, expected at least 1"):
        PagePool(num_pages, page_size)


@pytest.mark.parametrize("size", [1, 3, 16])
def test_the_number_of_pages_around_whole_pages(size: int) -> None:
    pool = PagePool(1, size)
    lengths = {length: pool.pages_for(length) for length in (0, 2 * size - 1, 2 * size, 2 * size + 1)}
    assert lengths == {0: 0, 2 * size - 1: 1 if size == 1 else 2, 2 * size: 2, 2 * size + 1: 3}


def test_check_finds_a_page_in_two_states() -> None:
    pool = PagePool(2, 4)
    page = pool.allocate()
    pool._blank.append(page)
    with pytest.raises(AssertionError, match="used and free"):
        pool.check()


def test_check_finds_a_lost_page_and_one_that_is_free_twice() -> None:
    lost, twice = PagePool(2, 4), PagePool(2, 4)
    lost._blank.pop()
    with pytest.raises(AssertionError, match="lost"):
        lost.check()
    twice._blank.append(0)
    with pytest.raises(AssertionError, match="free twice"):
        twice.check()
