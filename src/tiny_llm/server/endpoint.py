"""Routes whose requests have a body: body, fields, job, engine, answer; or body, fields, answer."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..sampling.grammar import Grammar, GrammarState, compile_grammar, find_grammar
from .api.answers import RunningJob
from .api.decode import decode
from .api.fields import RequestFields
from .api.job import Job
from .disconnect import Client, ClientGone, watch
from .errors import checking
from .lifecycle import Lifecycle
from .metrics import Meter, Metrics
from .middleware.body import Body, EarlyError, RequestMemory, Share, body_of, send_and_linger
from .models import Models, ServedModel
from .settings import Settings
from .sse import EventStream, as_lines
from .waiting import Deadline, Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What all routes share.

    Large bodies are decoded in `body_threads`, prompts rendered and encoded in `prompt_threads`. A new
    grammar may take seconds to compile: `grammar_threads` are few, and no other request waits for them.
    `submit_threads` give the engines what is ready: an engine checks each token of a prompt.
    """

    models: Models
    settings: Settings
    lifecycle: Lifecycle
    metrics: Metrics
    body_threads: Threads
    prompt_threads: Threads
    grammar_threads: Threads
    submit_threads: Threads
    memory: RequestMemory


class BodyEndpoint(ABC):
    """An ASGI app whose requests have a body, of class `fields`."""

    def __init__(self, service: Service, fields: type[RequestFields]):
        self._service = service
        self.fields = fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        client, deadline = Client(), Deadline(service.settings.request_timeout)
        with service.lifecycle.answering():
            try:
                with service.lifecycle.cutting(client.drop):
                    async with body_of(
                        scope, receive, service.settings, service.memory, client, deadline
                    ) as body:
                        with watch(receive, client), checking():
                            answer = await self._make_response(body, client, deadline)
            except EarlyError as error:
                await send_and_linger(error.with_traceback(None), scope, receive, send)
                return
            await answer(scope, receive, send)

    @abstractmethod
    async def _make_response(self, body: Body, client: Client, deadline: Deadline) -> ASGIApp:
        """The app that sends the answer. Until then a request leaves every queue that it waits in when its
        client goes or its time is over."""

    async def _decoded(self, body: Body) -> RequestFields:
        if len(body.content) <= self._service.settings.inline_body:
            fields = decode(body.content, self.fields)
        else:
            fields = await self._service.body_threads.run(decode, body.content, self.fields)
        body.fields = weakref.ref(fields)
        return fields


class PromptEndpoint(BodyEndpoint):
    """Answers about a prompt, without an engine: `compute` makes the answer of the fields."""

    def __init__(
        self,
        service: Service,
        fields: type[RequestFields],
        compute: Callable[[Any, ServedModel, Settings], msgspec.Struct],
    ):
        super().__init__(service, fields)
        self._compute = compute

    async def _make_response(self, body: Body, client: Client, deadline: Deadline) -> ASGIApp:
        service = self._service
        fields = await deadline.limit(client.wait_for(self._decoded(body)))
        model = service.models.find(fields.model)
        computed = service.prompt_threads.run(self._compute, fields, model, service.settings)
        record = await deadline.limit(client.wait_for(computed))
        return Response(msgspec.json.encode(record), media_type="application/json")


class AnswerEndpoint(BodyEndpoint):
    """Answers with a model. `prepare` makes a job of the fields."""

    def __init__(
        self,
        service: Service,
        fields: type[RequestFields],
        prepare: Callable[[Any, ServedModel, Settings], Job],
    ):
        super().__init__(service, fields)
        self._prepare = prepare

    async def _make_response(self, body: Body, client: Client, deadline: Deadline) -> ASGIApp:
        fields = await deadline.limit(client.wait_for(self._decoded(body)))
        model = self._service.models.find(fields.model)
        meter = Meter(self._service.metrics, model.name)
        try:
            job, grammars = await deadline.limit(client.wait_for(self._prepared(fields, model)))
        except ClientGone:
            meter.finish("cancelled")
            raise
        share = Share(self._service.memory)
        # Requests with the same grammar share it, but the answers of each add to what it takes.
        share.hold(job.memory + sum(grammar.size for grammar in grammars))
        try:
            running = await self._service.submit_threads.run(
                RunningJob, job, meter, share.grow, deadline.left()
            )
        except BaseException:
            share.release()
            raise
        return partial(self._answer, running, share)

    async def _prepared(self, fields: RequestFields, model: ServedModel) -> tuple[Job, list[GrammarState]]:
        """The prompts rendered and encoded, the grammars compiled. Each may take a while.

        The grammars are to be held until the engine has the job: it would compile one that was forgotten.
        """
        job, grammars = await self._service.prompt_threads.run(self._job_of, fields, model)
        held = []
        for grammar, compiled in grammars.items():
            if compiled is None:
                compiled = await self._service.grammar_threads.run(compile_grammar, model.tokenizer, grammar)
            held.append(compiled)
        return job, held

    def _job_of(
        self, fields: RequestFields, model: ServedModel
    ) -> tuple[Job, dict[Grammar, GrammarState | None]]:
        """The job, and its grammars; None for those that have to be compiled."""
        job = self._prepare(fields, model, self._service.settings)
        grammars = {each.grammar for each in job.requests if each.grammar is not None}
        return job, {grammar: find_grammar(model.tokenizer, grammar) for grammar in grammars}

    async def _answer(
        self, running: RunningJob, share: Share, scope: Scope, receive: Receive, send: Send
    ) -> None:
        client = Client()
        with (
            watch(receive, client),
            self._service.lifecycle.cutting(running.cut),
            ExitStack() as at_end,
        ):
            at_end.callback(share.release)
            client.when_gone(running.cancel)
            if running.job.stream:
                stream = EventStream(running.stream(), client, self._service.settings.keep_alive_comment)
                await stream(as_lines(send) if running.job.encoder.lines else send)
                return
            whole = await running.whole()
        await Response(whole, media_type="application/json")(scope, receive, send)
