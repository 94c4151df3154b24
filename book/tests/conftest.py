"""The built book, and a browser."""

import importlib.util
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fixtures():
    return load(Path(__file__).parent / "fixtures.py")


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder of the pages; a warning of Sphinx fails."""
    folder = tmp_path_factory.mktemp("book")
    assert load(ROOT / "tools/book.py").build(folder) == 0
    return folder


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, built):
    """Opens a page from its file; afterwards no error was logged, and nothing but files was asked for."""
    pages = []

    def open_page(name, *, width=1300, scheme="light", scripts=True):
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
        )
        page.problems = []
        page.on("console", lambda message: page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: _note_outside(page, request.url))
        page.goto(f"file://{built}/{name}.html")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert page.problems == []
        page.close()


def _note_outside(page, url):
    if not url.startswith(("file:", "data:")):
        page.problems.append(f"a request for {url}")
