"""The ASGI application: middleware around routes."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..errors import TinyLlmError
from .endpoint import Service
from .errors import ApiError, as_api_error
from .lifecycle import Lifecycle
from .metrics import Metrics
from .middleware.access import ERROR_KEY, Access
from .middleware.body import HeadGuard, RequestMemory
from .middleware.callers import OPEN, HostGuard, KeyGuard, OriginGuard
from .models import EngineProtocol, Models
from .routes import Routes
from .settings import Settings
from .waiting import Threads

LOG = logging.getLogger(__name__)
THREADS = 4  # that render and encode prompts
GRAMMAR_THREADS = 2
SUBMIT_THREADS = 2


def create_app(
    engines: Mapping[str, EngineProtocol],
    settings: Settings | None = None,
    lifecycle: Lifecycle | None = None,
) -> Access:
    """The server of these engines, under the names that requests use; the first is the default."""
    settings = settings or Settings()
    models = Models(engines)
    service = Service(
        models=models,
        settings=settings,
        lifecycle=lifecycle or Lifecycle(),
        metrics=Metrics(models),
        # One: decoding holds Python's lock, and takes up to twenty times the memory of a body.
        body_threads=Threads("body", 1),
        prompt_threads=Threads("prompt", THREADS, settings.max_prompts),
        grammar_threads=Threads("grammar", GRAMMAR_THREADS, settings.max_grammars),
        submit_threads=Threads("submit", SUBMIT_THREADS),
        memory=RequestMemory(settings.request_memory),
    )
    handled = (ApiError, TinyLlmError, HTTPException, Exception)
    routes = Routes(service)
    app = Starlette(routes=routes.all, exception_handlers=dict.fromkeys(handled, answer_error))
    app.router.redirect_slashes = False
    open_paths = OPEN | routes.page_paths | ({"/metrics"} if settings.open_metrics else set())
    keyed = KeyGuard(app, settings.api_keys, open_paths)
    shared = OriginGuard(keyed, settings.allowed_origins)
    guarded = HeadGuard(HostGuard(shared, settings.allowed_hosts), settings.max_head)
    return Access(guarded, service.metrics.refuse)


async def answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the router
        phrase = HTTPStatus(error.status_code).phrase.lower()
        headers = tuple((error.headers or {}).items())
        code = phrase.replace(" ", "_")
        sentence = f"{request.method} {request.scope['path']:.200}: {phrase}"
        error = ApiError(error.status_code, sentence, code=code, headers=headers)
    answer = request.scope[ERROR_KEY] = as_api_error(error)
    if answer.status == 500:
        LOG.error("a request failed", exc_info=error)
    return answer.response(request.scope["path"])
