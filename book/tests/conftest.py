"""The built book, and a browser."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

BOOK = Path(__file__).resolve().parents[1]
ROOT = BOOK.parent
CHROMIUM = "/usr/bin/chromium"


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load_tool(monkeypatch):
    """Imports tools/NAME.py, which finds the modules beside it."""

    def load_tool(name):
        monkeypatch.syspath_prepend(str(ROOT / "tools"))
        return load(ROOT / f"tools/{name}.py")

    return load_tool


@pytest.fixture
def run_model(tmp_path):
    """Runs tests/widgets/NAME.mjs under Node; its `fixture` is the record."""

    def run_model(name, record):
        file = tmp_path / "fixture.json"
        file.write_text(json.dumps(record, default=float, allow_nan=False))
        done = subprocess.run(
            ["node", "--test", f"tests/widgets/{name}.mjs"],
            cwd=BOOK,
            env={**os.environ, "FIXTURE": str(file)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        assert "# fail 0" in done.stdout
        assert "# pass 0" not in done.stdout

    return run_model


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder of the pages; a warning of Sphinx fails."""
    folder = tmp_path_factory.mktemp("book")
    subprocess.run([sys.executable, ROOT / "tools/book.py", "build", "--output", folder], check=True)
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

    def open_page(name, *, width=1300, scheme="light", scripts=True, touch=False):
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
            has_touch=touch,
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


@pytest.fixture
def open_widget(open_page):
    """Opens a page and returns a widget of it, whose script has replaced the text."""

    def open_widget(page, name, **options):
        found = open_page(page, **options).locator(f"figure.widget.mounted[data-widget={name}]").first
        found.wait_for()
        return found

    return open_widget


def _note_outside(page, url):
    if not url.startswith(("file:", "data:")):
        page.problems.append(f"a request for {url}")
