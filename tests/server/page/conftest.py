"""A browser for all tests, and tabs of it that must stay without errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ...support.serving.chat_page import ChatPage
from ...support.serving.fake_engine import FakeEngine
from ...support.serving.running import RunningServer, running

Open = Callable[..., ChatPage]
CHROMIUM = "/usr/bin/chromium"  # where Debian has it
OTHER_NAME = "machine.example"  # this machine, as the browser of another one sees it


def prompt(engine: FakeEngine) -> str:
    """Of the last request."""
    return engine.tokenizer.decode(engine.requests[-1].prompt_ids)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium of this machine: Playwright downloads nothing."""
    from playwright.sync_api import sync_playwright  # only these tests need it

    with sync_playwright() as playwright:
        options = [
            "--no-sandbox", "--disable-dev-shm-usage",  # in a container the sandbox cannot start
            f"--host-resolver-rules=MAP {OTHER_NAME} 127.0.0.1",
        ]  # fmt: skip
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Open]:
    """Open a tab with a storage of its own: `new_page(server, **options of the context)`."""
    pages = []

    def new(server: RunningServer, **options: Any) -> ChatPage:
        pages.append(ChatPage(browser.new_context(**options), server))
        return pages[-1]

    yield new
    for page in pages:
        page.context.close()
    assert [problem for page in pages for problem in page.problems] == []


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(script="The answer is **forty-two**.")


@pytest.fixture
def served(engine: FakeEngine) -> Iterator[RunningServer]:
    with running(engine) as started:
        yield started


@pytest.fixture
def page(new_page: Open, served: RunningServer) -> ChatPage:
    return new_page(served).open()
