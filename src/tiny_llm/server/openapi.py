"""The OpenAPI document: made of the routes, and of the classes of their requests and answers."""

from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.routing import Route

from ..runtime.version import version
from .endpoint import AnswerEndpoint, BodyEndpoint
from .errors import AnthropicErrorAnswer, ApiError, ErrorAnswer, OllamaErrorAnswer, is_ollama
from .middleware.callers import OPEN

REF = "#/components/schemas/{name}"
JSON, STREAM, LINES, TEXT = "application/json", "text/event-stream", "application/x-ndjson", "text/plain"
ERRORS = {
    "400": "a wrong value",
    "401": "the key is missing or wrong",
    "403": "the header Host names a host that is not allowed",
    "404": "no such model",
    "405": "a wrong method",
    "408": "the request did not arrive in time",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "429": "too many requests wait",
    "431": "the header is too large",
    "500": "the server failed; its log has the reason",
    "503": "the server is shutting down, has no memory, or its engine has stopped",
}


class ApiRoute(Route):
    """A route of the document; pages for people, for example, are other ones.

    answer: the class of what it answers with 200; None for plain text.
    """

    def __init__(self, path: str, endpoint: Any, answer: type | None, method: str):
        super().__init__(path.replace("{name}", "{name:path}"), endpoint, methods=[method])
        self.documented_path = path
        self.answer = answer

    @property
    def fields(self) -> type | None:
        """The class of its requests, if these have a body."""
        return self.endpoint.fields if isinstance(self.endpoint, BodyEndpoint) else None


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """Version 3.1, as an object for JSON: made of the `ApiRoute`s."""
    listed = [route for route in routes if isinstance(route, ApiRoute)]
    answers = [route.answer for route in listed if route.answer is not None]
    fields = [route.fields for route in listed if route.fields is not None]
    kinds = {*fields, *answers, ErrorAnswer, AnthropicErrorAnswer, OllamaErrorAnswer}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=REF)
    schema_of = dict(zip(ordered, references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "tiny-llm", "version": version()},
        "paths": {route.documented_path: _operations(route, schema_of) for route in listed},
        "components": {
            "schemas": _portable(components),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},  # of Anthropic's clients
            },
        },
        "security": [{"key": []}, {"header": []}, {}],  # a server without keys needs none
    }


def _operations(route: ApiRoute, schema_of: dict[type, Any]) -> dict[str, Any]:
    path, kind, fields = route.documented_path, route.answer, route.fields
    content: dict[str, Any] = {TEXT: {}} if kind is None else {JSON: {"schema": schema_of[kind]}}
    failure = type(ApiError(400, "").answer(path))
    errors = {
        status: {"description": text, "content": {JSON: {"schema": schema_of[failure]}}}
        for status, text in ERRORS.items()
    }
    operation: dict[str, Any] = {
        "responses": {"200": {"description": "the answer", "content": content}} | errors
    }
    if path in OPEN:
        operation["security"] = []
    if "{name}" in path:
        name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [name]
    if fields is None:
        return {"get": operation}
    if isinstance(route.endpoint, AnswerEndpoint):
        content[LINES if is_ollama(path) else STREAM] = {}  # where the request asks for a stream
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[fields]}}}
    return {"post": operation}


def _portable(schema: Any) -> Any:
    r"""Patterns as in ECMAScript, where $ is the end of the text, and \Z does not exist."""
    if isinstance(schema, dict):
        patterns = {"pattern": schema["pattern"].replace(r"\Z", "$")} if "pattern" in schema else {}
        return {key: _portable(value) for key, value in schema.items()} | patterns
    return [_portable(each) for each in schema] if isinstance(schema, list) else schema
