"""A discrete-event model of replicas behind the router of `tiny_llm.deploy`, whose rules are the same code.

A replica computes steps as an engine does: a token for each running answer, and as many tokens of prompts as
keep the step short. Steps take what they took in the records of `bench engine`; nothing is computed.

Requests and events of answers pass processes with costs of their own, `front` and `server`; by default these
take no time.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from benches.cases.stations import FREE, Cores, Costs, Event, Station
from benches.cases.traffic import StepTimes, Workload
from tiny_llm.deploy.routing import UPSCALE_SECONDS, LoadBound, wanted_replicas
from tiny_llm.engine.sizes import MAX_RUNNING, MAX_WAITING

PREFIX_BYTES = 16
FROM = 1 / 3  # of the time, before which nothing is measured


@dataclass(slots=True, eq=False)
class Request:
    arrived: float
    conversation: int
    prompt: int
    output: int
    left: int = 0  # tokens of the prompt to compute
    made: int = 0  # tokens of the answer
    attempts: int = 0


@dataclass(slots=True, eq=False)
class SimulatedReplica:
    name: str
    pages: int  # tokens that it keeps of prompts
    server: Station  # its process beside the engine
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    known: OrderedDict[int, int] = field(default_factory=OrderedDict)  # tokens of each conversation
    kept: int = 0
    busy: bool = False
    alive: bool = True

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.running)

    def learn(self, conversation: int, tokens: int) -> None:
        """Keep the pages of a prompt; those not used for the longest time make room."""
        self.kept += tokens - self.known.pop(conversation, 0)
        self.known[conversation] = tokens
        while self.kept > self.pages:
            self.kept -= self.known.popitem(last=False)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """failures: second, and how many replicas are lost then; each is back after `start` seconds.

    queue: requests of a replica, by which their number grows from `replicas` to `most`, `delay` seconds after
    it should, as Ray's does; None: it does not.
    """

    replicas: int
    prefix_routing: bool = True
    pages: int = 128 * 2**10
    front: tuple[Costs, ...] = ()  # of processes, from the client to the gateway
    server: Costs = FREE  # of a replica beside its engine
    cores: float | None = None  # that all share; None: enough
    failures: tuple[tuple[float, int], ...] = ()
    start: float = 10.0
    queue: float | None = None
    most: int = 0
    delay: float = UPSCALE_SECONDS
    attempts: int = 2


class Simulation:
    """`run` returns what `bench scaling` shows.

    alone: step times while no other replica computes, if that is another time, as on one machine.
    """

    def __init__(
        self, times: StepTimes, cluster: Cluster, workload: Workload, alone: StepTimes | None = None
    ):
        self._times, self._cluster, self._workload = times, cluster, workload
        self._alone = alone or times
        self._cores = Cores(cluster.cores, lambda: self.now, self._at)
        self._front = [Station(costs, self._cores) for costs in cluster.front]
        self._bound = LoadBound()
        self._random = random.Random(workload.seed + 1)
        self._events: list[tuple[float, int, Event]] = []
        self._order, self._names = itertools.count(), itertools.count()
        self._replicas: dict[str, SimulatedReplica] = {}
        self.loads: dict[str, int] = {}
        self._seen: set[int] = set()
        self._starting = 0
        self._since: float | None = None  # when the number of replicas began to be too small
        self.now = 0.0
        self.first_tokens: list[
            tuple[float, float]
        ] = []  # when a request arrived, seconds to its first token
        self.answered = self.finished = self.tokens = self.refused = self.broken = self.asked = self.hits = 0
        self.replicas_at: list[tuple[float, int]] = []

    def run(self) -> Simulation:
        random.seed(self._workload.seed)  # of the router
        for _ in range(self._cluster.replicas):
            self._add_replica()
        arrivals = self._workload.arrivals()
        self._last = arrivals[-1][0]
        for second, conversation, turn in arrivals:
            prompt = self._workload.prompt(turn)
            request = Request(second, conversation, prompt, self._workload.output)
            self._at(second, lambda request=request, turn=turn: self._arrive(request, turn))
        for second, number in self._cluster.failures:
            self._at(second, lambda number=number: self._fail(number))
        if self._cluster.queue is not None:
            self._at(1.0, self._scale)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self

    @property
    def _counts(self) -> bool:
        """For rates: neither while the first requests are answered, nor after the last one has come."""
        return self._last * FROM < self.now <= self._last

    def _at(self, second: float, event: Event) -> None:
        heapq.heappush(self._events, (second, next(self._order), event))

    def _add_replica(self) -> None:
        server = Station(self._cluster.server, self._cores)
        replica = SimulatedReplica(f"{next(self._names)}", self._cluster.pages, server)
        self._replicas[replica.name] = replica
        self.loads[replica.name] = 0
        self.replicas_at.append((self.now, len(self._replicas)))

    def _arrive(self, request: Request, turn: int) -> None:
        new = request.conversation not in self._seen
        self._seen.add(request.conversation)
        if new and turn > 1 and self._workload.warm and self.loads:
            owner = self._choose(request.conversation, dict.fromkeys(self.loads, 0))
            self._replicas[owner].learn(request.conversation, self._workload.prompt(turn - 1))
        self._pass(self._front, "request", lambda: self._send(request))

    def _pass(self, stations: Sequence[Station], cost: str, then: Event) -> None:
        """`then` after all of them, one by one."""
        if stations:
            first, *others = stations
            first.take(getattr(first.costs, cost), lambda: self._pass(others, cost, then))
        else:
            then()

    def _choose(self, conversation: int, loads: dict[str, int]) -> str:
        if not self._cluster.prefix_routing:
            return self._bound.order(None, loads)[0]
        prefix = blake2b(str(conversation).encode(), digest_size=PREFIX_BYTES).digest()
        return self._bound.order(prefix, loads)[0]

    def _send(self, request: Request) -> None:
        request.attempts += 1
        if not self.loads:
            self.refused += 1
            return
        replica = self._replicas[self._choose(request.conversation, self.loads)]
        if len(replica.waiting) >= MAX_WAITING:
            self.refused += 1
            return
        self.loads[replica.name] += 1
        self._pass([replica.server], "request", lambda: self._submit(replica, request))

    def _submit(self, replica: SimulatedReplica, request: Request) -> None:
        if not replica.alive:
            self._send(request)
            return
        replica.waiting.append(request)
        if not replica.busy:
            self._begin_step(replica)

    def _begin_step(self, replica: SimulatedReplica) -> None:
        """Admit requests, and compute until the end of the step."""
        while replica.waiting and len(replica.running) < MAX_RUNNING:
            request = replica.waiting.popleft()
            hit = min(replica.known.get(request.conversation, 0), request.prompt - 1)
            self.asked += request.prompt
            self.hits += hit
            request.left = request.prompt - hit
            replica.running.append(request)
        replica.busy = bool(replica.running)
        if not replica.busy:
            return
        answering = [request for request in replica.running if not request.left]
        alone = self._cores.limited and sum(each.busy for each in self._replicas.values()) == 1
        times = self._alone if alone else self._times
        budget, computed = self._times.prompt_tokens(len(answering)), []
        for request in replica.running:
            part = min(request.left, budget)
            if part:
                budget -= part
                computed.append((request, part))
        prompts = sum(part for _, part in computed)
        seconds = times.step(len(answering), prompts)
        self._cores.work(seconds, lambda: self._end_step(replica, answering, computed))

    def _end_step(
        self, replica: SimulatedReplica, answering: list[Request], computed: list[tuple[Request, int]]
    ) -> None:
        if not replica.alive:
            return
        for request, part in computed:
            request.left -= part
            if not request.left:
                replica.learn(request.conversation, request.prompt)
                answering.append(request)
        for request in answering:
            request.made += 1
            way = [replica.server, *reversed(self._front)]
            self._pass(way, "event", lambda request=request, made=request.made: self._arrived(request, made))
            self.tokens += self._counts
            if request.made == request.output:
                replica.running.remove(request)
                self.loads[replica.name] -= 1
                self.answered += 1
                self.finished += self._counts
        self._begin_step(replica)

    def _arrived(self, request: Request, made: int) -> None:
        if made == 1:
            self.first_tokens.append((request.arrived, self.now - request.arrived))

    def _fail(self, number: int) -> None:
        """Lost replicas: requests without a token are asked again, others end with an error."""
        for name in self._random.sample(sorted(self._replicas), number):
            replica = self._replicas.pop(name)
            del self.loads[name]
            replica.alive = False
            self._at(self.now + self._cluster.start, self._add_replica)
            self.replicas_at.append((self.now, len(self._replicas)))
            for request in (*replica.running, *replica.waiting):
                if request.made or request.attempts == self._cluster.attempts:
                    self.broken += 1
                else:
                    self._send(request)

    def _scale(self) -> None:
        """Once a second: start what has been wanted for a while. No replica is stopped."""
        assert self._cluster.queue is not None
        have = len(self._replicas) + self._starting
        requests = sum(self.loads.values())
        wanted = min(math.ceil(wanted_replicas(requests, self._cluster.queue)), self._cluster.most)
        if wanted <= have:
            self._since = None
        else:
            self._since = self.now if self._since is None else self._since
            if self.now - self._since >= self._cluster.delay:
                self._since = None
                for _ in range(wanted - have):
                    self._starting += 1
                    self._at(self.now + self._cluster.start, self._started)
        if self._events:
            self._at(self.now + 1.0, self._scale)

    def _started(self) -> None:
        self._starting -= 1
        self._add_replica()

    def record(self) -> dict[str, Any]:
        """Of the time after a while."""
        end = max(arrived for arrived, _ in self.first_tokens)
        waited = sorted(seconds for arrived, seconds in self.first_tokens if arrived > end * FROM)
        return {
            "requests_per_second": self.finished / (self._last * (1 - FROM)),
            "tokens_per_second": self.tokens / (self._last * (1 - FROM)),
            "hit_rate": self.hits / self.asked,
            "first_token_p50": waited[len(waited) // 2],
            "first_token_p99": waited[len(waited) * 99 // 100],
            "refused": self.refused,
            "broken": self.broken,
            "replicas_at_end": len(self._replicas),
        }
