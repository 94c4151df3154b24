"""The directives `openapi` and `statuses`: the server's routes and fields, from its document."""

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from tables import inline, table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))


class OpenApiDirective(Directive):
    """```{openapi}: a section for each route with its fields, then the schemas that they name."""

    def run(self) -> list[nodes.Node]:
        document = server_document()
        schemas = document["components"]["schemas"]
        operations = {
            f"{method.upper()} {path}": operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        requests = {request_schema(operation) for operation in operations.values()}
        routes = [route(name, operation, schemas) for name, operation in operations.items()]
        named = section("Schemas", nodes.Text("Schemas"), [])
        for name, schema in sorted(schemas.items()):
            if name not in requests:
                named += section(name, nodes.literal(text=name), fields(schema))
        return [*routes, named]


class StatusesDirective(Directive):
    """```{statuses}: what each status means."""

    def run(self) -> list[nodes.Node]:
        found = {
            status: response["description"]
            for methods in server_document()["paths"].values()
            for operation in methods.values()
            for status, response in operation["responses"].items()
        }
        rows = [[nodes.literal(text=status), found[status]] for status in sorted(found)]
        return [table(["status", "meaning"], rows)]


def server_document() -> dict[str, Any]:
    from tiny_llm.server.openapi import openapi
    from tiny_llm.server.routes import Routes

    nothing: Any = None  # the document depends on no model and no setting
    return openapi(Routes(nothing).all)


def request_schema(operation: dict[str, Any]) -> str | None:
    """The name of the schema of a request, if it has a body."""
    contents = operation.get("requestBody", {}).get("content", {}).values()
    return next((name_of(content["schema"]) for content in contents), None)


def route(name: str, operation: dict[str, Any], schemas: dict[str, Any]) -> nodes.section:
    answers: list[Any] = ["The answer:"]
    for kind, content in operation["responses"]["200"]["content"].items():
        answers += ["or"] * (len(answers) > 1) + [nodes.literal(text=kind)]
        if "schema" in content:
            answers.append(link(content["schema"]))
    (failure,) = operation["responses"]["400"]["content"].values()
    answers += ["; an error:", link(failure["schema"])]
    if "security" in operation:
        answers.append("; it needs no key")
    request = request_schema(operation)
    content = fields(schemas[request]) if request else []
    return section(name, nodes.literal(text=name), [nodes.paragraph("", "", *inline(answers)), *content])


def section(name: str, title: nodes.Node, content: list[nodes.Node]) -> nodes.section:
    made = nodes.section(ids=[identifier(name)])
    made += nodes.title("", "", title)
    made += content
    return made


def identifier(name: str) -> str:
    return f"server-{nodes.make_id(name)}"


def fields(schema: dict[str, Any]) -> list[nodes.Node]:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    header = ["field", "type", "default"]
    rows = [
        [nodes.literal(text=name), kind(each), "required" if name in required else default(each)]
        for name, each in properties.items()
    ]
    if set(required) == set(properties):  # of an answer: all fields are there
        header, rows = header[:2], [row[:2] for row in rows]
    about = [nodes.paragraph(text=schema["description"])] if "description" in schema else []
    return [*about, table(header, rows)]


def default(schema: dict[str, Any]) -> Any:
    value = schema.get("default")
    return "absent" if value is None else nodes.literal(text=str(value))


def kind(schema: dict[str, Any]) -> list[Any]:
    """A type with its limits, in words and links. `null` means absent in all fields, so it is left out."""
    if "$ref" in schema:
        return [link(schema)]
    if "anyOf" in schema:
        choices = [kind(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return [part for number, each in enumerate(choices) for part in (["or"] * (number > 0) + each)]
    if "enum" in schema:
        return [part for value in schema["enum"] for part in ("or", nodes.literal(text=str(value)))][1:]
    if schema.get("type") == "array":
        return ["list of", *kind(schema.get("items", {})), *limits(schema)]
    return [schema.get("type", "any value"), *limits(schema)]


LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "length ≥ {}",
    "maxLength": "length ≤ {}",
    "minItems": "length ≥ {}",
    "maxItems": "length ≤ {}",
    "pattern": "matching {}",
}
POWERS = {2**31 - 1: "2³¹ − 1", 2**63 - 1: "2⁶³ − 1", -(2**63): "−2⁶³"}


def limits(schema: dict[str, Any]) -> list[str]:
    found = [text.format(bound(schema[name])) for name, text in LIMITS.items() if name in schema]
    return [f"({', '.join(found)})"] if found else []


def bound(value: Any) -> str:
    if isinstance(value, str):
        return value
    return POWERS.get(value) or f"{value:,.0f}".replace("-", "−")


def link(schema: dict[str, Any]) -> nodes.Node:
    name = name_of(schema)
    return nodes.reference("", "", nodes.literal(text=name), refid=identifier(name), internal=True)


def name_of(schema: dict[str, Any]) -> str:
    return str(schema["$ref"].split("/")[-1])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("openapi", OpenApiDirective)
    app.add_directive("statuses", StatusesDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
