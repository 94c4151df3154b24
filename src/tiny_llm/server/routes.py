"""The routes, and the answers of those that need no engine step."""

from functools import cached_property

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..runtime.version import version
from .api.anthropic.fields import AnthropicFields, AnthropicPrompt
from .api.anthropic.read import count_messages, prepare_messages
from .api.chat import prepare_chat
from .api.completions import prepare_completion
from .api.count import detokenize, tokenize
from .api.fields import ChatFields, CompletionFields, DetokenizeFields, TokenizeFields
from .api.ollama.encoder import VERSION, show, tags
from .api.ollama.fields import OllamaChat, OllamaGenerate, ShowFields
from .api.ollama.read import prepare_generate, prepare_ollama_chat
from .api.responses.fields import ResponseFields
from .api.responses.read import count_input, prepare_response
from .endpoint import AnswerEndpoint, PromptEndpoint, Service
from .errors import ApiError
from .openapi import openapi
from .page.files import page_files


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
        chat = AnswerEndpoint(self._service, ChatFields, prepare_chat)
        completion = AnswerEndpoint(self._service, CompletionFields, prepare_completion)
        response = AnswerEndpoint(self._service, ResponseFields, prepare_response)
        messages = AnswerEndpoint(self._service, AnthropicFields, prepare_messages)
        response_tokens = PromptEndpoint(self._service, ResponseFields, count_input)
        message_tokens = PromptEndpoint(self._service, AnthropicPrompt, count_messages)
        ids = PromptEndpoint(self._service, TokenizeFields, tokenize)
        text = PromptEndpoint(self._service, DetokenizeFields, detokenize)
        ollama_chat = AnswerEndpoint(self._service, OllamaChat, prepare_ollama_chat)
        generate = AnswerEndpoint(self._service, OllamaGenerate, prepare_generate)
        ollama_show = PromptEndpoint(self._service, ShowFields, show)
        return [
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/completions", completion, methods=["POST"]),
            Route("/v1/responses", response, methods=["POST"]),
            Route("/v1/responses/input_tokens", response_tokens, methods=["POST"]),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", message_tokens, methods=["POST"]),
            Route("/tokenize", ids, methods=["POST"]),
            Route("/detokenize", text, methods=["POST"]),
            Route("/api/chat", ollama_chat, methods=["POST"]),
            Route("/api/generate", generate, methods=["POST"]),
            Route("/api/tags", self.ollama_tags),
            Route("/api/version", self.ollama_version),
            Route("/api/show", ollama_show, methods=["POST"]),
            Route("/v1/models", self.list_models),
            Route("/v1/models/{name:path}", self.show_model),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/version", self.version),
            *(file.route for file in self._page),
            Route("/openapi.json", self.document),
        ]

    async def list_models(self, request: Request) -> Response:
        cards = [model.card for model in self._service.models]
        return _json({"object": "list", "data": cards})

    async def show_model(self, request: Request) -> Response:
        return _json(self._service.models.find(request.path_params["name"]).card)

    async def ollama_tags(self, request: Request) -> Response:
        return _json(tags(self._service.models))

    async def ollama_version(self, request: Request) -> Response:
        return _json({"version": VERSION})

    async def health(self, request: Request) -> Response:
        """503 when an engine has been in one step for too long, or has failed."""
        timeout = self._service.settings.heartbeat_timeout
        if not all(model.engine.alive(timeout) for model in self._service.models):
            raise ApiError(503, "an engine has stopped", code="engine_failed")
        return _json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """503 when no new request is accepted. Models are loaded before the server starts."""
        self._service.lifecycle.check()
        return await self.health(request)

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def version(self, request: Request) -> Response:
        return _json({"version": version()})

    async def document(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        return msgspec.json.encode(openapi(self.all))


def _json(record: object) -> Response:
    return Response(msgspec.json.encode(record), media_type="application/json")
