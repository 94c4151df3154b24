"""A change of a source: the pages are built again, and open pages learn of it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def changes_class(load_tool):
    load_tool("book")  # its folder is on the path now
    from book_server.changes import Changes

    return Changes


def test_a_change_is_built_before_pages_are_told(changes_class, tmp_path):
    source, built = tmp_path / "page.md", []

    async def edit_until_told():
        changes = changes_class([tmp_path], lambda: built.append(source.read_text()))
        async with changes.watching(None):
            events = (await changes.stream(None)).body_iterator
            assert await anext(events) == ": waiting for a change\n\n"
            told = asyncio.ensure_future(anext(events))
            while not told.done():  # the first edits may come before the watcher is ready
                source.write_text(f"edit {len(built)}")
                await asyncio.wait([told], timeout=0.5)
            assert told.result() == "data: built\n\n"
            assert built
            changes.close()
            return [event async for event in events if event != told.result()]

    # Playwright's loop runs in the thread of the tests.
    with ThreadPoolExecutor(1) as thread:
        rest = thread.submit(asyncio.run, asyncio.wait_for(edit_until_told(), 60)).result()
    assert rest == []
