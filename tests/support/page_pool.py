"""What holds for a page pool at any time."""

from tiny_llm.paged_kv_cache import TinyKvPagedPool


def assert_consistent(pool: TinyKvPagedPool) -> None:
    """Every page is either free or used, and has storage once a token was written."""
    free = set(pool.free_page_ids)
    assert len(free) == len(pool.free_page_ids), "a page was freed twice"
    assert not free & pool.used_page_ids, "a page is free and used at once"
    assert free | pool.used_page_ids == set(range(pool.num_pages)), "a page was lost"
    assert pool.key_pages is None or pool.key_pages.shape[0] == pool.num_pages, "a page has no storage"
