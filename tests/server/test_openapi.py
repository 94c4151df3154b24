"""GET /openapi.json: the routes, their fields, and the shape of errors."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tiny_llm.server.api.anthropic_reader import AnthropicFields, AnthropicPrompt
from tiny_llm.server.api.fields import ChatFields, CompletionFields, DetokenizeFields, TokenizeFields
from tiny_llm.server.api.ollama_reader import OllamaChat, OllamaGenerate, ShowFields
from tiny_llm.server.api.responses_reader import ResponseFields

from ..support.serving.running import RunningServer

FIELDS = {
    "/v1/chat/completions": ChatFields,
    "/v1/completions": CompletionFields,
    "/v1/responses": ResponseFields,
    "/v1/responses/input_tokens": ResponseFields,
    "/v1/messages": AnthropicFields,
    "/v1/messages/count_tokens": AnthropicPrompt,
    "/tokenize": TokenizeFields,
    "/detokenize": DetokenizeFields,
    "/api/chat": OllamaChat,
    "/api/generate": OllamaGenerate,
    "/api/show": ShowFields,
}
GETS = {
    "/v1/models", "/v1/models/{name}", "/health", "/ready", "/metrics", "/version",
    "/api/tags", "/api/version",
}  # fmt: skip


SSE, LINES = "text/event-stream", "application/x-ndjson"
# The schema of an answer, the type of a stream, and the schema of a request.
OPERATIONS = {
    "/v1/chat/completions": ("ChatAnswer", SSE, "ChatFields"),
    "/v1/completions": ("CompletionAnswer", SSE, "CompletionFields"),
    "/v1/responses": ("ResponseAnswer", SSE, "ResponseFields"),
    "/v1/responses/input_tokens": ("ResponseTokens", None, "ResponseFields"),
    "/v1/messages": ("AnthropicAnswer", SSE, "AnthropicFields"),
    "/v1/messages/count_tokens": ("AnthropicTokens", None, "AnthropicPrompt"),
    "/tokenize": ("Tokenized", None, "TokenizeFields"),
    "/detokenize": ("Detokenized", None, "DetokenizeFields"),
    "/api/chat": ("OllamaChatAnswer", LINES, "OllamaChat"),
    "/api/generate": ("OllamaGenerateAnswer", LINES, "OllamaGenerate"),
    "/api/show": ("OllamaModel", None, "ShowFields"),
    "/api/tags": ("OllamaTags", None, None),
    "/api/version": ("Version", None, None),
    "/v1/models": ("ModelList", None, None),
    "/v1/models/{name}": ("ModelCard", None, None),
    "/health": ("Health", None, None),
    "/ready": ("Health", None, None),
    "/version": ("Version", None, None),
}


@pytest.fixture
def document(server: RunningServer) -> dict:
    return server.get("/openapi.json").record


@pytest.mark.parametrize("path", FIELDS)
def test_a_route_has_all_fields_of_its_requests(document: dict, path: str) -> None:
    schema = schema_of(document, document["paths"][path]["post"]["requestBody"]["content"])
    fields = msgspec.structs.fields(FIELDS[path])
    assert set(schema["properties"]) == {field.encode_name for field in fields}
    assert set(schema.get("required", ())) == {field.encode_name for field in fields if field.required}


def test_a_range_is_that_of_the_field(document: dict, server: RunningServer) -> None:
    schema = schema_of(document, document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"])
    number, _ = schema["properties"]["temperature"]["anyOf"]
    assert (number["minimum"], number["maximum"]) == (0, 2)
    assert server.chat(temperature=number["maximum"] + 0.1).status == 400


def test_every_route_that_needs_no_page_is_there(document: dict, server: RunningServer) -> None:
    for path, operations in document["paths"].items():
        method = "POST" if "post" in operations else "GET"
        answer = server.request(method, path.replace("{name}", "fake"), {} if method == "POST" else None)
        assert str(answer.status) in operations[method.lower()]["responses"]
        assert answer.status in (200, 400)
    assert {*FIELDS, *GETS} == {*document["paths"]}


def test_an_operation_names_its_answer_its_stream_and_its_request(document: dict) -> None:
    assert document["paths"].pop("/metrics")["get"]["responses"]["200"]["content"] == {"text/plain": {}}
    errors = {"400", "401", "403", "404", "405", "408", "413", "415", "429", "431", "500", "503"}
    for path, operations in document["paths"].items():
        answer, stream, request = OPERATIONS[path]
        (operation,) = operations.values()
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{answer}"}}}
        assert operation["responses"]["200"]["content"] == content | ({stream: {}} if stream else {})
        assert operation["responses"].keys() == {"200", *errors}
        asked = {"application/json": {"schema": {"$ref": f"#/components/schemas/{request}"}}}
        body = {"required": True, "content": asked} if request else None
        assert (operation.get("requestBody"), list(operations)) == (body, ["post" if request else "get"])
        assert operation.get("security") == ([] if path in ("/health", "/ready") else None)
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    assert document["paths"]["/v1/models/{name}"]["get"]["parameters"] == [name]
    assert document["openapi"] == "3.1.0"
    assert document["security"] == [{"key": []}, {"header": []}, {}]
    assert document["components"]["securitySchemes"] == {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }


def test_every_reference_has_a_target_and_every_pattern_is_portable(document: dict) -> None:
    names = document["components"]["schemas"]
    written = json.dumps(document)
    references = re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', written)
    assert set(references) <= set(names)
    assert r"\\Z" not in written


def test_errors_have_the_form_of_their_route(document: dict) -> None:
    for path, operations in document["paths"].items():
        (operation,) = operations.values()
        schema = schema_of(document, operation["responses"]["400"]["content"])
        assert ("type" in schema["properties"]) == path.startswith("/v1/messages")
        assert (schema["properties"]["error"] == {"type": "string"}) == path.startswith("/api/")


def test_a_route_says_what_it_streams_and_that_it_needs_no_key(document: dict) -> None:
    operations = {path: next(iter(each.values())) for path, each in document["paths"].items()}
    contents = {path: set(each["responses"]["200"]["content"]) for path, each in operations.items()}
    chats = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}
    assert {path for path, kinds in contents.items() if "text/event-stream" in kinds} == chats
    lines = {path for path, kinds in contents.items() if "application/x-ndjson" in kinds}
    assert lines == {"/api/chat", "/api/generate"}
    assert {path for path, each in operations.items() if "security" in each} == {"/health", "/ready"}
    assert {path for path, each in operations.items() if "parameters" in each} == {"/v1/models/{name}"}


def schema_of(document: dict, content: dict) -> dict:
    reference = content["application/json"]["schema"]["$ref"]
    return document["components"]["schemas"][reference.rpartition("/")[2]]
