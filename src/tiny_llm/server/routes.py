"""The routes: one table of what they take, do and answer, of which the OpenAPI document is made, too."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..runtime.version import version
from .api.anthropic_encoder import AnthropicAnswer, AnthropicTokens
from .api.anthropic_reader import AnthropicFields, AnthropicPrompt, count_messages, prepare_messages
from .api.chat import ChatAnswer, prepare_chat
from .api.completions import CompletionAnswer, prepare_completion
from .api.fields import ChatFields, CompletionFields, DetokenizeFields, RequestFields, TokenizeFields
from .api.ollama_encoder import (
    VERSION,
    OllamaChatAnswer,
    OllamaGenerateAnswer,
    OllamaModel,
    OllamaTags,
    show,
    tags,
)
from .api.ollama_reader import OllamaChat, OllamaGenerate, ShowFields, prepare_generate, prepare_ollama_chat
from .api.prompt import Detokenized, Tokenized, detokenize, tokenize
from .api.responses_encoder import ResponseAnswer, ResponseTokens
from .api.responses_reader import ResponseFields, count_input, prepare_response
from .endpoint import AnswerEndpoint, PromptEndpoint, Service
from .errors import ApiError
from .models import ModelCard, ModelList
from .openapi import ApiRoute, openapi
from .page.files import page_files


class Health(msgspec.Struct):
    status: Literal["ok"]


class Version(msgspec.Struct):
    version: str


def list_models(service: Service, request: Request) -> ModelList:
    return ModelList("list", [model.card for model in service.models])


def show_model(service: Service, request: Request) -> ModelCard:
    return service.models.find(request.path_params["name"]).card


def list_tags(service: Service, request: Request) -> OllamaTags:
    return tags(service.models)


def health(service: Service, request: Request) -> Health:
    """503 when an engine has been in one step for too long, or has failed."""
    if not all(model.engine.alive(service.settings.heartbeat_timeout) for model in service.models):
        raise ApiError(503, "an engine has stopped", code="engine_failed")
    return Health("ok")


def ready(service: Service, request: Request) -> Health:
    """503 when no new request is accepted. Models are loaded before the server starts."""
    service.lifecycle.check()
    return health(service, request)


def metrics(service: Service, request: Request) -> Response:
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


class Operation(NamedTuple):
    """answer: the class of what is answered with 200; None for plain text.

    fields: the class of the body of a POST. Of these, `prepare` makes a job, or `compute` the answer itself.
    get: answers a GET.
    """

    answer: type[msgspec.Struct] | None
    fields: type[RequestFields] | None = None
    prepare: Callable[..., Any] | None = None
    compute: Callable[..., Any] | None = None
    get: Callable[[Service, Request], msgspec.Struct | Response] | None = None

    def route(self, path: str, service: Service) -> ApiRoute:
        if self.fields is None:
            return ApiRoute(path, self._answer_get(service), self.answer, "GET")
        if self.prepare is not None:
            return ApiRoute(path, AnswerEndpoint(service, self.fields, self.prepare), self.answer, "POST")
        assert self.compute is not None
        return ApiRoute(path, PromptEndpoint(service, self.fields, self.compute), self.answer, "POST")

    def _answer_get(self, service: Service) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            assert self.get is not None
            given = self.get(service, request)
            return given if isinstance(given, Response) else _json(msgspec.json.encode(given))

        return answer


API = {
    "/v1/chat/completions": Operation(ChatAnswer, ChatFields, prepare=prepare_chat),
    "/v1/completions": Operation(CompletionAnswer, CompletionFields, prepare=prepare_completion),
    "/v1/responses": Operation(ResponseAnswer, ResponseFields, prepare=prepare_response),
    "/v1/responses/input_tokens": Operation(ResponseTokens, ResponseFields, compute=count_input),
    "/v1/messages": Operation(AnthropicAnswer, AnthropicFields, prepare=prepare_messages),
    "/v1/messages/count_tokens": Operation(AnthropicTokens, AnthropicPrompt, compute=count_messages),
    "/tokenize": Operation(Tokenized, TokenizeFields, compute=tokenize),
    "/detokenize": Operation(Detokenized, DetokenizeFields, compute=detokenize),
    "/api/chat": Operation(OllamaChatAnswer, OllamaChat, prepare=prepare_ollama_chat),
    "/api/generate": Operation(OllamaGenerateAnswer, OllamaGenerate, prepare=prepare_generate),
    "/api/tags": Operation(OllamaTags, get=list_tags),
    "/api/version": Operation(Version, get=lambda service, request: Version(VERSION)),
    "/api/show": Operation(OllamaModel, ShowFields, compute=show),
    "/v1/models": Operation(ModelList, get=list_models),
    "/v1/models/{name}": Operation(ModelCard, get=show_model),
    "/health": Operation(Health, get=health),
    "/ready": Operation(Health, get=ready),
    "/metrics": Operation(None, get=metrics),
    "/version": Operation(Version, get=lambda service, request: Version(version())),
}


class Routes:
    def __init__(self, service: Service):
        self._service = service
        self._page = page_files()

    @property
    def page_paths(self) -> frozenset[str]:
        """The page itself needs no key; what it asks for does."""
        return frozenset(file.path for file in self._page)

    @property
    def all(self) -> list[Route]:
        return [
            *(operation.route(path, self._service) for path, operation in API.items()),
            *(file.route for file in self._page),
            Route("/openapi.json", self.document),
        ]

    async def document(self, request: Request) -> Response:
        return _json(self._document)

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(openapi(self.all))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
