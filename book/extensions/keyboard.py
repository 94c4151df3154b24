"""Code and formulas that are wider than the page can be scrolled by keyboard: they take the focus."""

from typing import Any

from sphinx.application import Sphinx


def make_focusable(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    body = context.get("body")
    if body:
        body = body.replace("<pre>", '<pre tabindex="0">')
        context["body"] = body.replace('<div class="formula">', '<div class="formula" tabindex="0">')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", make_focusable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
