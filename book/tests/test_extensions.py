"""The directives in a book of one page."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from sphinx.application import Sphinx

pytestmark = pytest.mark.browser
BOOK = Path(__file__).resolve().parents[1]


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds a page with one extension."""

    def build(text, extension):
        monkeypatch.syspath_prepend(str(BOOK / "extensions"))
        text = text.replace("{root}", os.path.relpath(BOOK.parent, tmp_path))
        (tmp_path / "index.md").write_text(f"# A page\n\n{text}\n")
        settings = {
            "extensions": ["myst_parser", "accessibility", extension],
            "language": "en",
            "html_theme": "furo",
            "html_static_path": [str(BOOK / "static")],
            "html_css_files": ["book.css"],
        }
        folders = tmp_path, None, tmp_path / "html", tmp_path / "doctrees"
        application = Sphinx(*folders, "html", confoverrides=settings, status=None)
        application.build()
        return application

    return build


def watched(application):
    return {(Path(application.srcdir) / each).resolve() for each in application.env.dependencies["index"]}


def test_a_page_is_built_again_when_a_file_of_its_widget_changes(build):
    application = build("```{widget} traffic\n| a |\n|---|\n| 1 |\n```", "widgets")
    folders = (BOOK / "widgets" / "traffic", BOOK / "widgets" / "common")
    assert {path for folder in folders for path in folder.iterdir()} <= watched(application)


def include(name, *options):
    """As a chapter writes it."""
    return "\n".join([f"```{{literalinclude}} {{root}}/{name}", *options, "```\n"])


TASKS = {
    "a function": include("src/tiny_llm/basics.py", ":pyobject: linear"),
    "a part of one": include("src/tiny_llm/attention.py", ":pyobject: causal_mask", ":lines: 6-"),
    "a class with one": include("src/tiny_llm/embedding.py", ":pyobject: Embedding"),
    "a native function": include(
        "src/extensions/src/cpu/attention/online_softmax-inl.h",
        ":language: cpp",
        ":start-at: VEC_FN F update_maximum",
        ':end-before: "// Rows with |m|"',
    ),
    "a native region": include(
        "src/extensions/src/flash_attention.metal",
        ":language: cpp",
        ':start-at: "  float m = -INFINITY;"',
        ':end-before: "  // One division a row."',
    ),
}
OTHERS = {
    "no task": include("src/tiny_llm/basics.py", ":pyobject: silu_multiply"),
    "a docstring": include("src/tiny_llm/basics.py", ":pyobject: linear", ":lines: 1-5"),
    "another file": include("src/tiny_llm/quantize.py", ":pyobject: dequantize_linear"),
}


def test_code_of_tasks_is_folded_and_no_other(build, browser):
    application = build("\n".join([*TASKS.values(), *OTHERS.values()]), "solutions")
    assert BOOK.parent / "course.toml" in watched(application)
    page = browser.new_page()
    page.goto(f"file://{application.outdir}/index.html")
    assert page.locator("article pre").count() == len(TASKS) + len(OTHERS)
    assert page.locator("details.solution pre").count() == len(TASKS)
    assert page.locator("pre:visible").count() == len(OTHERS)
    found = Axe().run(page, context="article", options={"preload": False}).response["violations"]
    assert found == []
    page.locator("summary").first.press("Enter")
    assert page.locator("pre:visible").count() == len(OTHERS) + 1
    page.emulate_media(media="print")
    assert page.locator("pre:visible").count() == len(TASKS) + len(OTHERS)
    page.close()
