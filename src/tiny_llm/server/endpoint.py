"""A route that answers with a model: body, fields, job, engine, answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..sampling.grammar import knows_grammar
from .api.answers import Running
from .api.decode import decode
from .api.fields import RequestFields
from .api.job import Job
from .disconnect import watch
from .guard.body import Bodies, EarlyError, body_of, send_and_linger
from .lifecycle import Lifecycle
from .metrics import Meter, Metrics
from .models import Models, ServedModel
from .settings import Settings
from .sse import EventStream
from .threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What all routes share. Large bodies are decoded, prompts rendered and encoded in `threads`.

    A new grammar may take seconds to compile: `grammar_threads` are few, and no other request waits for them.
    """

    models: Models
    settings: Settings
    lifecycle: Lifecycle
    metrics: Metrics
    threads: Threads
    grammar_threads: Threads
    bodies: Bodies


class AnswerEndpoint:
    """An ASGI app. `prepare` makes a job of the fields, of class `fields`."""

    def __init__(
        self,
        service: Service,
        fields: type[RequestFields],
        prepare: Callable[[Any, ServedModel, Settings], Job],
    ):
        self._service = service
        self.fields = fields
        self._prepare = prepare

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.lifecycle.answering():
            service = self._service
            try:
                async with body_of(Request(scope, receive), service.settings, service.bodies) as body:
                    running = await self._started(body)
            except EarlyError as error:
                await send_and_linger(error, scope, receive, send)
                return
            await self._answer(running, scope, receive, send)

    async def _started(self, body: bytes) -> Running:
        """The job of a body, in the engine."""
        service = self._service
        if len(body) > service.settings.inline_body:
            fields = await service.threads.run(decode, body, self.fields)
        else:
            fields = decode(body, self.fields)
        model = service.models.find(fields.model)
        meter = Meter(service.metrics, model.name)
        started = await service.threads.run(self._start, fields, model, meter)
        if isinstance(started, Job):
            started = await service.grammar_threads.run(Running, started, meter)
        return started

    async def _answer(self, running: Running, scope: Scope, receive: Receive, send: Send) -> None:
        if running.job.stream:
            comment_after = self._service.settings.keep_alive_comment
            stream = EventStream(running.stream(), running.cancel, comment_after)
            await stream(scope, receive, send)
            return
        with watch(receive, running.cancel):
            whole = await running.whole()
        await Response(whole, media_type="application/json")(scope, receive, send)

    def _start(self, fields: RequestFields, model: ServedModel, meter: Meter) -> Running | Job:
        """Render and encode; submit what has no new grammar. Each may take a while."""
        job = self._prepare(fields, model, self._service.settings)
        grammars = [request.grammar for request in job.requests if request.grammar is not None]
        if all(knows_grammar(model.tokenizer, grammar) for grammar in grammars):
            return Running(job, meter)
        return job
