"""Replicas in this process, and a gateway in front of them on a free port."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import uvicorn
from starlette.types import Message

from tiny_llm.deploy.exchange import exchange, whole_answer
from tiny_llm.deploy.gateway import Gateway, ReplicaLost, for_replicas
from tiny_llm.deploy.routing import LoadBound
from tiny_llm.server.app import create_app
from tiny_llm.server.run import bind
from tiny_llm.server.settings import Settings

from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, RunningServer, wait_until


class LocalReplicas:
    """`lost_after`: how many lists of messages a replica sends before it is lost, by its name.

    hung: these take no request, and say nothing.
    """

    def __init__(self, engines: Mapping[str, FakeEngine], settings: Settings):
        behind = for_replicas(settings)
        self.apps = {name: create_app({"fake": engine}, behind) for name, engine in engines.items()}
        self.loads: Counter[str] = Counter(dict.fromkeys(engines, 0))
        self.answered: list[str] = []
        self.lost_after: dict[str, int] = {}
        self.hung: set[str] = set()
        self.asked: list[str] = []
        self.refusal: Exception | None = None

    async def answer(
        self, scope: dict[str, Any], body: bytes, prefix: bytes | None
    ) -> AsyncGenerator[list[Message], None]:
        if self.refusal is not None:
            raise self.refusal
        name = LoadBound().order(prefix, {name: self.loads[name] for name in self.apps})[0]
        self.loads[name] += 1
        self.answered.append(name)
        sent = 0
        try:
            await self.wait_if_hung(name)
            yield []
            async with aclosing(exchange(self.apps[name], scope, body)) as lists:
                async for messages in lists:
                    if self.lost_after.get(name) == sent:
                        del self.lost_after[name], self.apps[name]
                        raise ReplicaLost
                    sent += 1
                    yield messages
        finally:
            self.loads[name] -= 1

    async def wait_if_hung(self, name: str) -> None:
        while name in self.hung:
            await asyncio.sleep(0.01)

    def names(self) -> list[str]:
        return list(self.apps)

    async def answer_of(self, name: str, scope: dict[str, Any]) -> list[Message]:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(name)
        await self.wait_if_hung(name)
        return await whole_answer(self.apps[name], scope)


@contextmanager
def gateway(
    engines: Mapping[str, FakeEngine], taken_seconds: float = SECONDS, **settings: Any
) -> Iterator[tuple[RunningServer, LocalReplicas]]:
    chosen = Settings(**settings)
    replicas = LocalReplicas(engines, chosen)
    app = Gateway(replicas, chosen, taken_seconds)
    bound = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, ws="none"))
    thread = threading.Thread(target=lambda: server.run(sockets=[bound]), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield RunningServer(server, bound.getsockname(), replicas), replicas
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive(), "the gateway did not stop"
