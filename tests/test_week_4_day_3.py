"""Week 4, day 3: pages with several owners, prefixes that are found again, and copy on write."""

from array import array
from random import Random

import pytest

from tiny_llm.cache.pages import PagePool
from tiny_llm.cache.prefix_index import Digest, PrefixIndex, digest
from tiny_llm.scheduler import RequestState
from tiny_llm.scheduler.page_allocator import Copies, PageAllocator

from .support.page_allocator import answered, forked, request, tables_of
from .support.refusal import refused

TEXT = array("i", [1, 2, 3, 4, 5, 6])  # three pages of two tokens


def pool_with(number: int, num_pages: int = 4) -> PagePool:
    """A pool whose pages 0 to number - 1 have one owner."""
    pool = PagePool(num_pages, page_size=4)
    assert [pool.allocate() for _ in range(number)] == list(range(number))
    return pool


def test_task_1_a_page_is_used_until_its_last_owner_leaves():
    pool = pool_with(1)
    pool.share(0)
    pool.share(0)
    for owners in (2, 1, 0):
        assert pool.owners(0) == owners + 1
        pool.release(0)
        assert (pool.owners(0), pool.num_free) == (owners, 4 if owners == 0 else 3)
        pool.check()


def test_task_1_blank_pages_are_taken_before_kept_ones():
    """Then the kept page that was released first. Nobody wants the content of page 2."""
    pool = pool_with(4)
    for page in (1, 0, 2):
        pool.release(page, keep=page != 2)
    assert [pool.has_content(page) for page in range(4)] == [True, True, False, True]
    assert [pool.allocate() for _ in range(3)] == [2, 1, 0]
    pool.check()


def test_task_1_a_kept_page_can_be_used_again():
    """It is not free then. When it is released again, it is the newest of the kept ones."""
    pool = pool_with(4)
    pool.release(0, keep=True)
    pool.share(0)
    assert (pool.owners(0), pool.num_free) == (1, 0)
    pool.check()
    for page in (1, 0):
        pool.release(page, keep=True)
    assert [pool.allocate(), pool.allocate()] == [1, 0]


def test_task_1_wrong_calls_are_refused_and_change_nothing():
    """A page goes back twice; nobody knows what is in a blank page; no page is free."""
    pool = pool_with(1, num_pages=2)
    with refused("release", function="PagePool"):
        pool.release(1)
    with refused("share", function="PagePool"):
        pool.share(1)
    for page in (-1, 2):
        with refused("page", function="PagePool"):
            pool.share(page)
    pool.check()
    pool.allocate()
    with refused("allocate", function="PagePool"):
        pool.allocate()
    assert pool.num_free == 0
    pool.check()


def test_task_1_owners_are_the_page_tables_that_list_a_page():
    """Random calls: `listed` has a page once for each owner."""
    random, pool = Random(1), PagePool(5, page_size=4)
    listed: list[int] = []
    for _ in range(500):
        what = random.choice(["allocate", "share", "release"])
        if what == "allocate" and pool.num_free:
            listed.append(pool.allocate())
        elif what == "share" and listed:
            listed.append(random.choice(listed))
            pool.share(listed[-1])
        elif what == "release" and listed:
            pool.release(listed.pop(random.randrange(len(listed))), keep=random.random() < 0.5)
        pool.check()
        assert [pool.owners(page) for page in range(5)] == [listed.count(page) for page in range(5)]


def named(*pages: int, text=TEXT, salt="", index: PrefixIndex | None = None) -> PrefixIndex:
    """An index in which these pages hold the beginning of the text, two tokens each."""
    index = PrefixIndex(page_size=2) if index is None else index
    keys: list[bytes] = []
    for number, page in enumerate(pages):
        index.register(page, keys, text, number, salt)
    index.check()
    return index


def find(index: PrefixIndex, tokens: list[int], salt: str = "") -> list[int]:
    return index.find([], array("i", tokens), len(tokens) // 2, salt)


def test_task_2_a_name_is_the_hash_of_the_name_before_and_the_tokens():
    """Digests of bytes: those of the name, then those of the array of the page's tokens."""
    keys: list[bytes] = []
    PrefixIndex(2, "model").extend(keys, TEXT, 3, "salt")
    start = digest(repr(("model", "salt")).encode())
    first = digest(start + TEXT[0:2].tobytes())
    second = digest(first + TEXT[2:4].tobytes())
    assert keys == [first, second, digest(second + TEXT[4:6].tobytes())]


def test_task_2_known_names_are_not_computed_again():
    calls = []

    def counting(data: bytes) -> bytes:
        calls.append(data)
        return data

    index = PrefixIndex(2, digest=counting)
    keys: list[bytes] = []
    index.extend(keys, TEXT, 1, "")
    first = list(keys)
    calls.clear()
    index.extend(keys, TEXT, 3, "")
    assert (keys[:1], len(keys), len(calls)) == (first, 3, 2)
    index.extend(keys, TEXT, 2, "")
    assert (len(keys), len(calls)) == (3, 2)


def test_task_2_the_longest_common_beginning_is_found():
    index = named(7, 3, 5)
    assert find(index, [1, 2, 3, 4, 5, 6, 7]) == [7, 3, 5]
    assert find(index, [1, 2, 3, 4, 9, 9]) == [7, 3]
    assert find(index, [9, 2, 3, 4, 5, 6]) == []
    assert find(index, [1]) == []


def test_task_2_the_search_stops_at_the_first_page_that_is_missing():
    index = named(7, 3, 5)
    index.forget(3)
    assert find(index, [1, 2, 3, 4, 5, 6]) == [7]


def test_task_2_no_more_pages_are_found_than_asked_for():
    """The names of all three are known."""
    index, keys = named(7, 3, 5), []
    index.extend(keys, TEXT, 3, "")
    assert index.find(keys, TEXT, 2, "") == [7, 3]


def test_task_2_texts_with_different_salts_share_nothing():
    index = named(7, 3, 5, salt="alice")
    assert find(index, [*TEXT], "alice") == [7, 3, 5]
    assert find(index, [*TEXT], "bob") == find(index, [*TEXT]) == []


@pytest.mark.parametrize(
    ("bad", "tokens", "pages"),
    [(lambda data: b"the same", [9, 9], []), (lambda data: data[-8:], [8, 8, 3, 4], [2])],
    ids=["other tokens", "another beginning"],
)
def test_task_2_equal_names_of_different_texts_find_nothing(bad: Digest, tokens, pages):
    """With a good digest it does not happen, but a wrong hit would show one user the text of another."""
    index = named(0, 1, text=TEXT[:4], index=PrefixIndex(2, digest=bad))
    if pages:  # the page before is found, and the one after it has the name of another
        named(*pages, text=array("i", tokens[:2]), index=index)
    assert find(index, tokens) == pages


def test_task_2_a_text_has_one_page_and_a_page_has_one_text():
    """Two equal prompts that started together fill two pages each: the first ones are found."""
    index = named(8, 9, 4, index=named(7, 3))
    assert find(index, [*TEXT]) == [7, 3, 4]
    named(7, text=array("i", [8, 8]), index=index)
    assert find(index, [8, 8]) == []


def pages_and_owners(tables: PageAllocator, state: RequestState) -> tuple[list[int], list[int]]:
    return list(state.pages), [tables.pool.owners(page) for page in state.pages]


def test_task_3_every_four_tokens_get_a_page():
    """Those of the answer, too, which a request has after a preemption."""
    tables, state = tables_of(8), request(*range(7))
    state.token_ids.extend([7, 8])
    assert tables.start(state, spare=0)
    assert pages_and_owners(tables, state) == ([0, 1, 2], [1, 1, 1])
    assert (state.computed, state.registered) == (0, 0)


def test_task_3_a_known_beginning_is_shared_and_not_computed():
    """Page 2 of the first request is not full, so it cannot be shared."""
    tables = tables_of(8)
    first, second = answered(tables, *range(10)), request(*range(8), 70, 71)
    assert tables.start(second, spare=0)
    assert pages_and_owners(tables, second) == ([0, 1, 3], [2, 2, 1])
    assert (second.computed, second.registered) == (8, 2)
    tables.check([first, second])


def test_task_3_the_last_token_is_always_computed():
    """Both pages of the prompt are known, but its last token needs logits."""
    tables, again = tables_of(8), request(*range(8))
    answered(tables, *range(8))
    assert tables.start(again, spare=0)
    assert (list(again.pages), again.computed) == ([0, 2], 4)


def test_task_3_equal_prompts_that_start_in_one_step_share_nothing():
    tables, first, second = tables_of(8), request(*range(9)), request(*range(9))
    assert tables.start(first, spare=0)
    assert tables.start(second, spare=0)
    assert (list(second.pages), second.computed) == ([3, 4, 5], 0)


@pytest.mark.parametrize("known", [False, True], ids=["new", "kept"])
def test_task_3_a_start_leaves_spare_pages_or_takes_none(known):
    """9 tokens take 3 of 5 free pages, also if two of those are kept with the same tokens."""
    for spare, starts in ((2, True), (3, False)):
        tables, state = tables_of(5), request(*range(9))
        if known:
            tables.release(answered(tables, *range(9)))
        assert tables.start(state, spare) is starts
        assert (tables.pool.num_free, len(state.pages)) == ((2, 3) if starts else (5, 0))


def test_task_3_found_pages_are_taken_before_new_ones():
    """Page 0 is the oldest kept one, and all other pages are needed for the rest of the prompt."""
    tables, state = tables_of(4), request(*range(4), *range(50, 62))
    tables.release(answered(tables, *range(5)))
    tables.release(answered(tables, *range(20, 28)))
    assert tables.start(state, spare=0)
    assert (state.pages[0], sorted(state.pages)) == (0, [0, 1, 2, 3])
    tables.check([state])


def grow(tables: PageAllocator, state: RequestState, **ahead: int) -> tuple[bool, list[int], Copies]:
    copies: Copies = []
    grown = tables.grow(state, copies, **ahead)
    return grown, list(state.pages), copies


def test_task_3_a_new_page_is_taken_when_the_last_one_is_full():
    tables = tables_of(3)
    state = answered(tables, *range(7))
    assert grow(tables, state) == (True, [0, 1], [])
    state.computed = 8
    assert grow(tables, state) == (True, [0, 1, 2], [])


def test_task_3_a_new_page_is_taken_for_a_token_ahead():
    tables = tables_of(3)
    state = answered(tables, *range(7))
    assert grow(tables, state) == (True, [0, 1], [])
    assert grow(tables, state, ahead=1) == (True, [0, 1, 2], [])


def test_task_3_a_shared_page_is_copied_before_it_is_written():
    """By the first of two answers. The last owner writes in place. A full page is not copied."""
    tables = tables_of(8)
    first, second = forked(tables, *range(6))
    assert grow(tables, first) == (True, [0, 2], [(1, 2)])
    assert grow(tables, second) == (True, [0, 1], [])
    tables.check([first, second])
    first, second = forked(tables := tables_of(8), *range(8))
    assert grow(tables, first) == (True, [0, 1, 2], [])
    assert grow(tables, second) == (True, [0, 1, 3], [])


def test_task_3_growth_that_needs_a_page_fails_when_none_is_free():
    tables = tables_of(2)
    first, second = forked(tables, *range(6))
    assert grow(tables, first) == (False, [0, 1], [])
    tables.release(second)
    assert grow(tables, first) == (True, [0, 1], [])


def test_task_3_a_request_gives_back_all_its_pages():
    """Those that it shares stay with their other owners."""
    tables = tables_of(4)
    first, second = forked(tables, *range(6))
    tables.release(first)
    assert (list(first.pages), first.computed) == ([], 0)
    assert pages_and_owners(tables, second) == ([0, 1], [1, 1])
    tables.check([second])


def test_task_3_the_end_of_a_prefix_is_given_up_before_its_beginning():
    """Three pages are kept and one is needed: the third one goes. It was not full, but could be found."""
    tables = tables_of(3)
    tables.release(answered(tables, *range(11)))
    assert set(tables._index) == {0, 1, 2}
    tables.release(answered(tables, 99))
    assert tables._index.find([], array("i", range(11)), 2, "") == [0, 1]
