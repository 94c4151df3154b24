"""The directive `widget`: an interactive picture, whose content is what readers without scripts see.

A browser loads no module from a file path. The page carries the modules of its widgets in an import map, as
data URLs, so that one page works from a server and from a file. It carries their styles as well.
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

WIDGETS = Path(__file__).parents[1] / "widgets"


class Widget(nodes.General, nodes.Element):
    """A figure with the content of the directive, until its script replaces it."""


class WidgetDirective(Directive):
    """```{widget} NAME: mounts widgets/NAME/view.js over the content."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if not (WIDGETS / name / "view.js").is_file():
            raise self.error(f"there is no widget {name} in {WIDGETS}")
        for folder in ("common", name):  # the page is built again when one of these files changes
            for path in sorted((WIDGETS / folder).iterdir()):
                self.state.document.settings.env.note_dependency(str(path))
        node = Widget(name=name)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def visit_widget(writer: Any, node: Widget) -> None:
    writer.body.append(f'<figure class="widget" data-widget="{node["name"]}">')


def depart_widget(writer: Any, node: Widget) -> None:
    writer.body.append("</figure>")


def modules() -> dict[str, str]:
    """An import map: the names that modules use for each other, and their texts as data URLs."""
    return {
        f"#widgets/{path.relative_to(WIDGETS).as_posix()}": "data:text/javascript;base64,"
        + b64encode(script_of(path)).decode()
        for path in sorted([*WIDGETS.rglob("*.js"), *WIDGETS.rglob("*.json")])
    }


def script_of(path: Path) -> bytes:
    """The module; JSON becomes one whose default export is the value."""
    text = path.read_bytes()
    return b"export default " + text if path.suffix == ".json" else text


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the modules, the styles and one mounting script into pages that have widgets."""
    names = sorted({node["name"] for node in doctree.findall(Widget)}) if doctree else []
    if names:
        mounts = "\n".join(
            f'import {{ mount as mount_{name} }} from "#widgets/{name}/view.js";\n'
            f"for (const place of document.querySelectorAll('[data-widget={name}]')) mount_{name}(place);"
            for name in names
        )
        sheets = [WIDGETS / "common" / "widget.css", *(WIDGETS / name / "style.css" for name in names)]
        context["metatags"] += f"<style>{''.join(sheet.read_text() for sheet in sheets)}</style>"
        import_map = json.dumps({"imports": modules()})
        context["body"] += (
            f'<script type="importmap">{import_map}</script><script type="module">{mounts}</script>'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Widget, html=(visit_widget, depart_widget))
    app.add_directive("widget", WidgetDirective)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
