"""`serve run tiny_llm.deploy.ray:app model=qwen2-0.5b replicas=2`: replicas of the server on a Ray cluster.

A gateway reads requests and chooses a replica for each: a process with the engines and the application of
`tiny-llm serve`. docs/scaling.md shows clusters.
"""

import argparse
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from contextvars import Context
from typing import Any

import ray
from ray import serve
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message

from ..cli.exit_codes import Failure
from ..cli.serve import KEY_VARIABLE, make_engine, read_settings
from ..engine.sizes import MAX_RUNNING, MAX_WAITING
from ..errors import QueueFull
from ..loading.progress import silent
from ..server.app import create_app
from ..server.errors import ApiError
from ..server.logs import set_up_logs
from ..server.settings import Settings
from .arguments import RayArguments, parse
from .exchange import exchange, whole_answer
from .gateway import Gateway, ReplicaLost, for_replicas
from .router import QUEUE, PrefixRouter, by_queue
from .routing import UPSCALE_SECONDS, Running

LOG = logging.getLogger(__name__)
LOST = (RayActorError, NodeDiedError, ObjectLostError)
STREAMS = 4096  # of a gateway at a time
BESIDE = 16  # calls of a replica beside the requests of its engines: health, metrics, refusals


class RayReplicas:
    """The replicas behind a handle."""

    def __init__(self, handle: DeploymentHandle[Any], prefix_routing: bool):
        self._answer = handle.options(method_name="answer", stream=True)
        self._whole_answer = handle.options(method_name="whole_answer")
        self._prefix_routing = prefix_routing

    async def answer(
        self, scope: dict[str, Any], body: bytes, prefix: bytes | None
    ) -> AsyncGenerator[list[Message], None]:
        response = self._answer.remote(scope, body, prefix=prefix if self._prefix_routing else None)
        try:
            with our_errors():
                async for messages in response:
                    yield messages
        finally:
            response.cancel()

    def names(self) -> list[str]:
        return Running.names()

    async def answer_of(self, name: str, scope: dict[str, Any]) -> list[Message]:
        # All calls in the context of a request have its id, and Ray's router knows one call for each id.
        called = Context().run(self._whole_answer.remote, scope, only=name)
        try:
            with our_errors():
                messages: list[Message] = await called
                return messages
        finally:
            called.cancel()


@contextmanager
def our_errors() -> Iterator[None]:
    """A block whose errors of Ray become ours."""
    try:
        yield
    except LOST as lost:
        raise ReplicaLost from lost
    except BackPressureError as full:
        raise QueueFull(MAX_WAITING) from full
    except DeploymentUnavailableError as none:
        raise ApiError(503, "no replica is running", code="engine_failed") from none


class RayGateway:
    def __init__(
        self,
        replicas: DeploymentHandle[Any],
        command_line: list[str],
        prefix_routing: bool,
        taken_seconds: float,
        with_keys: bool,
    ):
        options, _ = parse(command_line)
        set_up_logs(options.log_format)
        settings = settings_with_keys(options, with_keys)
        self._gateway = Gateway(RayReplicas(replicas, prefix_routing), settings, taken_seconds)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return self._gateway


class Replica:
    """The engines and the application of `tiny-llm serve`, in a process with the CPUs that Ray grants it."""

    def __init__(self, command_line: list[str], pause: float, with_keys: bool):
        options, names = parse(command_line)
        set_up_logs(options.log_format)
        granted = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        options.threads = str(max(int(granted) // (options.tensor_parallel or 1), 1))  # of each rank
        LOG.info("a replica with %s threads", options.threads)
        self._engines = {name: make_engine(model, options, silent) for name, model in names.items()}
        self._pause = pause
        self._settings = settings_with_keys(options, with_keys)
        self._app = create_app(self._engines, for_replicas(self._settings))

    async def answer(
        self, scope: dict[str, Any], body: bytes, *, prefix: bytes | None
    ) -> AsyncGenerator[list[Message], None]:
        """`prefix` is for the router, which reads the arguments of a call. The first list is empty."""
        yield []
        async with aclosing(exchange(self._app, scope, body, self._pause)) as lists:
            async for messages in lists:
                yield messages

    async def whole_answer(self, scope: dict[str, Any], *, only: str) -> list[Message]:
        """`only` is for the router as well."""
        return await whole_answer(self._app, scope)

    def record_autoscaling_stats(self) -> dict[str, int]:
        now = [engine.statistics() for engine in self._engines.values()]
        return {QUEUE: sum(each.running + each.waiting for each in now)}

    def check_health(self) -> None:
        """Ray starts another replica after a few failures."""
        if not all(engine.alive(self._settings.heartbeat_timeout) for engine in self._engines.values()):
            raise RuntimeError("an engine has stopped")


def settings_with_keys(options: argparse.Namespace, with_keys: bool) -> Settings:
    """The settings of a process; Failure in one that lacks the keys that the application was started with."""
    settings = read_settings(options)
    if with_keys and not settings.api_keys:
        where = "set it where `ray start` runs, on every node, or give api_key_file"
        raise Failure(f"{KEY_VARIABLE}: not set in a process of Ray: {where}")
    if not settings.api_keys:
        LOG.warning("everybody who reaches this address can use the server: see api_key_file")
    return settings


def app(arguments: RayArguments) -> serve.Application:
    command_line = arguments.command_line
    options, names = parse(command_line)
    cpus, gpus = arguments.tensor_parallel * arguments.cpus, arguments.tensor_parallel * arguments.gpus
    with_keys = bool(read_settings(options).api_keys)
    calls = (options.max_running or MAX_RUNNING) + (options.max_waiting or MAX_WAITING)
    deployed: dict[str, Any] = {
        "max_ongoing_requests": len(names) * calls + BESIDE,  # the engines refuse with 429 before Ray does
        "max_queued_requests": len(names) * MAX_WAITING,  # while there is no replica
        "health_check_period_s": 2,  # a killed replica is replaced soon
        "graceful_shutdown_timeout_s": options.drain_timeout,
        "ray_actor_options": {"num_cpus": cpus, "num_gpus": gpus},
        "request_router_config": {
            "request_router_class": PrefixRouter,
            "request_router_kwargs": {"factor": arguments.load_factor, "spare": arguments.spare},
        },
    }
    if arguments.tensor_parallel > 1:  # the ranks are processes of the actor: one bundle, on one machine
        deployed["placement_group_bundles"] = [{"CPU": float(cpus), "GPU": float(gpus)}]
        deployed["placement_group_strategy"] = "STRICT_PACK"
    if arguments.max_replicas is None:
        deployed["num_replicas"] = arguments.replicas
    else:
        deployed["autoscaling_config"] = {
            "min_replicas": arguments.replicas,
            "max_replicas": arguments.max_replicas,
            "target_ongoing_requests": arguments.queue,
            "upscale_delay_s": UPSCALE_SECONDS,
            "look_back_period_s": UPSCALE_SECONDS,
            "policy": {"policy_function": by_queue},
        }
    replicas = serve.deployment(Replica, **deployed).bind(command_line, arguments.pause, with_keys)
    gateway = serve.deployment(
        serve.ingress()(RayGateway),
        num_replicas=arguments.gateways,
        max_ongoing_requests=STREAMS,
        ray_actor_options={"num_cpus": 0},
    )
    return gateway.bind(
        replicas, command_line, arguments.prefix_routing, arguments.replica_timeout, with_keys
    )
