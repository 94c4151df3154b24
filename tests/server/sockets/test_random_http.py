"""Random requests, made from the OpenAPI document: no answer is 500, and each has a declared shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tiny_llm.server.routes import API as ANSWERS

from ...support.serving.running import RunningServer

EXAMPLES = 30
GETS = [
    "/health", "/metrics", "/ready", "/v1/models", "/v1/models/{name}", "/version",
    "/api/tags", "/api/version",
]  # fmt: skip
POSTS = [path for path in ANSWERS if path not in GETS]
# A GET has nothing that could be invalid.
CASES = [*((path, True) for path in ANSWERS), *((path, False) for path in POSTS)]


@pytest.mark.schemathesis
@pytest.mark.parametrize(("path", "valid"), CASES)
def test_a_random_request_is_answered_as_declared(server: RunningServer, path: str, valid: bool) -> None:
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    (operation,) = schema[path].values()
    mode = schemathesis.GenerationMode.POSITIVE if valid else schemathesis.GenerationMode.NEGATIVE

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def answers(case: Any) -> None:
        case.call_and_validate(checks=checks)

    answers()
    assert server.chat().status == 200
