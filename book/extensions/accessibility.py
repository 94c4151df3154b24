"""What Sphinx's pages lack for readers without a mouse or a screen.

Code, tables and formulas that are wider than the page take the focus, so that the keyboard scrolls them.
Captions of lists of chapters are headings, and say of which level.
"""

from typing import Any

from sphinx.application import Sphinx


def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    body = context.get("body")
    if body:
        body = body.replace("<pre>", '<pre tabindex="0">')
        body = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
        body = body.replace('role="heading">', 'role="heading" aria-level="2">')
        context["body"] = body.replace('<div class="formula">', '<div class="formula" tabindex="0">')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
