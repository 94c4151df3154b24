"""The directive `widget`: an interactive picture, whose content is what readers without scripts see.

A browser loads no module from a file path. The page carries the modules of its widgets in an import map, as
data URLs, so that one page works from a server and from a file. It carries their styles as well.

A widget that shows measurements has a `data.py`: data() becomes its module `data.js`, table() the content
where the directive has none, and FILES are what both read.
"""

import importlib.util
import json
from base64 import b64encode
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
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
        node = Widget(name=name)
        content = self.content
        parts = [
            path for folder in (name, "common") for path in (WIDGETS / folder).iterdir() if path.is_file()
        ]
        if measured := measurements(name):
            content = content or StringList(measured.table(), source=measured.__file__)
            parts += measured.FILES
        for path in parts:  # the page is built again when one of these files changes
            self.state.document.settings.record_dependencies.add(str(path))
        self.state.nested_parse(content, self.content_offset, node)
        return [node]


@cache
def measurements(name: str) -> ModuleType | None:
    """The module data.py of a widget, None without one."""
    file = WIDGETS / name / "data.py"
    if not file.is_file():
        return None
    spec = importlib.util.spec_from_file_location(f"data_of_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def visit_widget(writer: Any, node: Widget) -> None:
    writer.body.append(f'<figure class="widget" data-widget="{node["name"]}">')


def depart_widget(writer: Any, node: Widget) -> None:
    writer.body.append("</figure>")


def modules(names: list[str]) -> dict[str, str]:
    """An import map: the names that modules use for each other, and their texts as data URLs.

    All modules are in it, because widgets share some. Of data, only those of these widgets are in it; JSON
    becomes a module whose default export is the value.
    """
    texts = {path.relative_to(WIDGETS).as_posix(): path.read_text() for path in sorted(WIDGETS.rglob("*.js"))}
    for name in names:
        for path in sorted((WIDGETS / name).glob("*.json")):
            texts[f"{name}/{path.name}"] = f"export default {path.read_text()};"
        if measured := measurements(name):
            texts[f"{name}/data.js"] = f"export default {json.dumps(measured.data())};"
    return {
        f"#widgets/{name}": f"data:text/javascript;base64,{b64encode(text.encode()).decode()}"
        for name, text in texts.items()
    }


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
        import_map = json.dumps({"imports": modules(names)})
        context["body"] += (
            f'<script type="importmap">{import_map}</script><script type="module">{mounts}</script>'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Widget, html=(visit_widget, depart_widget))
    app.add_directive("widget", WidgetDirective)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
