"""Requests that take pages of 4 tokens, without a scheduler."""

from tiny_llm.cache.pages import PagePool
from tiny_llm.cache.prefix_index import PrefixIndex
from tiny_llm.scheduler import RequestState
from tiny_llm.scheduler.page_allocator import PageAllocator


def tables_of(num_pages: int) -> PageAllocator:
    return PageAllocator(PagePool(num_pages, page_size=4), PrefixIndex(4))


def request(*token_ids: int) -> RequestState:
    return RequestState("", token_ids, max_tokens=9)


def answered(tables: PageAllocator, *token_ids: int) -> RequestState:
    """A request that has started, and whose tokens are all computed."""
    state = request(*token_ids)
    assert tables.start(state, spare=0)
    state.computed = len(token_ids)
    tables.register(state)
    return state


def forked(tables: PageAllocator, *token_ids: int) -> list[RequestState]:
    """Two answers to one prompt, after it was computed."""
    state = answered(tables, *token_ids)
    other = state.fork(1)
    tables.share(other)
    return [state, other]
