"""Errors as clients expect them: a status, and a sentence with a fixed word for programs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.responses import Response

from ..errors import (
    Draining,
    EngineFailed,
    GrammarError,
    GrammarQueueBusy,
    NumericError,
    QueueFull,
    RefusedArgument,
)

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
ANTHROPIC_PATH = "/v1/messages"
ANTHROPIC_TYPES = {
    408: "timeout_error",
    413: "request_too_large",
    500: "api_error",
    503: "overloaded_error",
}
OLLAMA_PATHS = "/api/"
RETRY = ("retry-after", "1")  # seconds: a full queue moves within seconds
NO_RETRY = ("x-should-retry", "false")  # known to the clients of OpenAI and Anthropic, which try a 503 again
# Exceptions of the engine and of Python: status, sentence (else the exception's own) and code.
KNOWN: tuple[tuple[type[BaseException], int, str | None, str], ...] = (
    (QueueFull, 429, "too many requests wait, try again later", "queue_full"),
    (GrammarQueueBusy, 429, None, "grammar_queue_busy"),
    (Draining, 503, "the server is shutting down: it accepts no new requests", "draining"),
    (EngineFailed, 503, "the engine has stopped after a fault", "engine_failed"),
    (GrammarError, 400, None, "invalid_grammar"),
    (NumericError, 500, "the model computed NaN", "numeric_error"),
    (MemoryError, 503, "out of memory, try a shorter prompt or answer", "out_of_memory"),
)
INTERNAL = "the server failed to answer; its log has the reason under this request id"


class ErrorDetail(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Struct):
    error: ErrorDetail


class OllamaErrorAnswer(Struct):
    error: str


class AnthropicErrorDetail(Struct):
    type: str
    message: str


class AnthropicErrorAnswer(Struct):
    type: Literal["error"]
    error: AnthropicErrorDetail


class ApiError(Exception):
    """An answer other than 200. `param` is the field at fault; `code` is a fixed word for programs.

    retry: whether the same request may succeed later; matters where clients would try, after 429 and 503.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        retry: bool = True,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers if status not in (429, 503) else (*headers, RETRY if retry else NO_RETRY)

    def answer(self, path: str = "") -> ErrorAnswer | AnthropicErrorAnswer | OllamaErrorAnswer:
        """In the form that the clients of this path know."""
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        if is_ollama(path):
            return OllamaErrorAnswer(self.message)
        if is_anthropic(path):
            kind = ANTHROPIC_TYPES.get(self.status, kind)
            return AnthropicErrorAnswer("error", AnthropicErrorDetail(kind, self.message))
        return ErrorAnswer(ErrorDetail(self.message, kind, self.param, self.code))

    def encode(self, path: str = "") -> bytes:
        return msgspec.json.encode(self.answer(path))

    def response(self, path: str = "") -> Response:
        return Response(self.encode(path), self.status, dict(self.headers), media_type="application/json")


def is_anthropic(path: str) -> bool:
    """Whether the clients of this path are Anthropic's, also where there is no such route."""
    return path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")


def is_ollama(path: str) -> bool:
    return path.startswith(OLLAMA_PATHS)


def bad_value(param: str, expected: str, code: str = "invalid_value") -> ApiError:
    """400: `param` has a value that is not allowed."""
    return ApiError(400, f"{param}: expected {expected}", param=param, code=code)


def unsupported(param: str, reason: str) -> ApiError:
    """400: a known field that this server does not honour."""
    return ApiError(400, f"{param}: {reason}", param=param, code="unsupported_value")


def refused(
    error: RefusedArgument, param: str | None = None, code: str = "invalid_value", about: str = ""
) -> ApiError:
    """400: an argument that the client has chosen, `param` if it does not have the name of the argument."""
    param = param or error.argument
    return ApiError(400, f"{param}: {about}{error.reason}", param=param, code=code)


@contextmanager
def renaming(names: Mapping[str, str]) -> Iterator[None]:
    """A block whose errors name the fields of the request: `names` has them by the names that we give."""
    try:
        yield
    except ApiError as error:
        name = names.get(error.param or "")
        if name is not None:
            error.message = error.message.replace(f"{error.param}:", f"{name}:", 1)
            error.param = name
        raise


@contextmanager
def checking(param: str | None = None, code: str = "invalid_value", about: str = "") -> Iterator[None]:
    """A block that checks what a client asks for: an argument refused there is its mistake, not ours."""
    try:
        yield
    except RefusedArgument as error:
        raise refused(error, param, code, about) from error


def as_api_error(error: BaseException) -> ApiError:
    """The answer for an exception; one that is not expected is 500 without its text."""
    if isinstance(error, ApiError):
        return error
    for kind, status, sentence, code in KNOWN:
        if isinstance(error, kind):
            return ApiError(status, sentence or str(error), code=code)
    return ApiError(500, INTERNAL, code="internal_error")
