"""The OpenAPI document: made of the routes, and of the classes that decode their requests."""

from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.routing import Route

from ..runtime.version import version
from .api import schemas
from .endpoint import AnswerEndpoint, BodyEndpoint
from .errors import is_anthropic, is_ollama
from .middleware.callers import OPEN

REF = "#/components/schemas/{name}"
JSON, STREAM, LINES, TEXT = "application/json", "text/event-stream", "application/x-ndjson", "text/plain"
# What a route answers with 200. Routes that are not here, such as pages for people, are not in the document.
ANSWERS: dict[str, type | None] = {
    "/v1/chat/completions": schemas.ChatAnswer,
    "/v1/completions": schemas.CompletionAnswer,
    "/v1/responses": schemas.ResponseAnswer,
    "/v1/responses/input_tokens": schemas.ResponseTokens,
    "/v1/messages": schemas.AnthropicAnswer,
    "/v1/messages/count_tokens": schemas.AnthropicTokens,
    "/tokenize": schemas.Tokenized,
    "/detokenize": schemas.Detokenized,
    "/api/chat": schemas.OllamaChatAnswer,
    "/api/generate": schemas.OllamaGenerateAnswer,
    "/api/show": schemas.OllamaModel,
    "/api/tags": schemas.OllamaTags,
    "/api/version": schemas.Version,
    "/v1/models": schemas.ModelList,
    "/v1/models/{name}": schemas.ModelCard,
    "/health": schemas.Health,
    "/ready": schemas.Health,
    "/metrics": None,  # plain text
    "/version": schemas.Version,
}
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


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    """Version 3.1, as an object for JSON."""
    listed = [(route.path.replace(":path", ""), route) for route in routes]
    listed = [(path, route) for path, route in listed if path in ANSWERS]
    fields = {path: r.endpoint.fields for path, r in listed if isinstance(r.endpoint, BodyEndpoint)}
    kinds = {
        *fields.values(),
        *filter(None, ANSWERS.values()),
        schemas.ErrorAnswer,
        schemas.AnthropicErrorAnswer,
        schemas.OllamaErrorAnswer,
    }
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    references, components = msgspec.json.schema_components(ordered, ref_template=REF)
    schema_of = dict(zip(ordered, references, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {"title": "tiny-llm", "version": version()},
        "paths": {
            path: _operations(path, fields.get(path), isinstance(route.endpoint, AnswerEndpoint), schema_of)
            for path, route in listed
        },
        "components": {
            "schemas": _portable(components),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},  # of Anthropic's clients
            },
        },
        "security": [{"key": []}, {"header": []}, {}],  # a server without keys needs none
    }


def _operations(path: str, fields: type | None, streams: bool, schema_of: dict[type, Any]) -> dict[str, Any]:
    kind = ANSWERS[path]
    content: dict[str, Any] = {TEXT: {}} if kind is None else {JSON: {"schema": schema_of[kind]}}
    failure: type = schemas.AnthropicErrorAnswer if is_anthropic(path) else schemas.ErrorAnswer
    if is_ollama(path):
        failure = schemas.OllamaErrorAnswer
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
    if streams:
        content[LINES if is_ollama(path) else STREAM] = {}  # where the request asks for a stream
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[fields]}}}
    return {"post": operation}


def _portable(schema: Any) -> Any:
    r"""Patterns as in ECMAScript, where $ is the end of the text, and \Z does not exist."""
    if isinstance(schema, dict):
        patterns = {"pattern": schema["pattern"].replace(r"\Z", "$")} if "pattern" in schema else {}
        return {key: _portable(value) for key, value in schema.items()} | patterns
    return [_portable(each) for each in schema] if isinstance(schema, list) else schema
