"""The directives in a book of one page."""

from pathlib import Path

import pytest
from sphinx.application import Sphinx

pytestmark = pytest.mark.browser
BOOK = Path(__file__).resolve().parents[1]


def test_a_page_is_built_again_when_a_file_of_its_widget_changes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BOOK / "extensions"))
    (tmp_path / "index.md").write_text("# A page\n\n```{widget} traffic\n| a |\n|---|\n| 1 |\n```\n")
    settings = {"extensions": ["myst_parser", "widgets"]}
    application = Sphinx(
        tmp_path, None, tmp_path / "html", tmp_path / "doctrees", "html", confoverrides=settings, status=None
    )
    application.build()
    watched = {(tmp_path / each).resolve() for each in application.env.dependencies["index"]}
    folders = (BOOK / "widgets" / "traffic", BOOK / "widgets" / "common")
    assert {path for folder in folders for path in folder.iterdir()} <= watched
