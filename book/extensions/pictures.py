"""The directive `picture`: a drawing of book/pictures inside the page, in the page's colours."""

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

PICTURES = Path(__file__).parents[1] / "pictures"


class Picture(nodes.General, nodes.Element):
    """A figure: the drawing, then the content of the directive as its caption."""


class PictureDirective(Directive):
    """```{picture} NAME: shows pictures/NAME.svg; the content is the caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        path = PICTURES / f"{name}.svg"
        if not path.is_file():
            raise self.error(f"there is no picture {name} in {PICTURES}")
        self.state.document.settings.env.note_dependency(str(path))
        node = Picture(name=name)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def inline(name: str) -> str:
    """The drawing for use within a page: its title and description have ids that no other picture has."""
    drawing = (PICTURES / f"{name}.svg").read_text()
    labels = f'role="img" aria-labelledby="{name}-title" aria-describedby="{name}-desc"'
    drawing = drawing.replace("<svg ", f"<svg {labels} ", 1)
    for part in ("title", "desc"):
        drawing = drawing.replace(f"<{part}>", f'<{part} id="{name}-{part}">', 1)
    return drawing


def visit_picture(writer: Any, node: Picture) -> None:
    writer.body.append(f'<figure class="picture">{inline(node["name"])}<figcaption>')


def depart_picture(writer: Any, node: Picture) -> None:
    writer.body.append("</figcaption></figure>")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(Picture, html=(visit_picture, depart_picture))
    app.add_directive("picture", PictureDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
