"""The arguments of the application: how many replicas of what size, and any option of `tiny-llm serve`."""

import argparse
from typing import Any, NoReturn

from pydantic import BaseModel, Field

from ..cli.exit_codes import Refusal
from ..cli.serve import add_arguments, check_draft, model_names
from .gateway import TAKEN_SECONDS
from .routing import FACTOR, QUEUED, SPARE

# Options of `tiny-llm serve` that others decide here.
DECIDED = {
    "host": "http_options of Ray Serve's configuration",
    "port": "http_options of Ray Serve's configuration",
    "threads": "cpus, which Ray grants to a replica",
    "pipeline_parallel": "tensor_parallel: a replica is on one machine",
    "hostfile": "Ray, which knows the machines",
}


class RayArguments(BaseModel, extra="allow", frozen=True):
    """As `NAME=VALUE` after `serve run`, or below `args` in a YAML file. All others are options of `serve`.

    replicas: how many, or the fewest with max_replicas.
    max_replicas: the most; their number then follows the requests in the engines' queues.
    queue: requests, running or waiting, that a replica should have; more start another one.
    cpus, gpus: of each process of a replica, which has one for each rank of tensor_parallel. All are one
        bundle of a placement group, as they share a machine.
    gateways: processes that read requests and pass answers on.
    replica_timeout: seconds that a request waits for a replica, such as one that is being started; then 503.
    pause: seconds from one part of a stream to the next: each costs a call between processes.
    load_factor, spare: as in `LoadBound`.
    prefix_routing: false routes to the least loaded replica, to compare.
    """

    replicas: int = Field(1, ge=1)
    max_replicas: int | None = Field(None, ge=1)
    queue: float = Field(QUEUED, gt=0)
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    tensor_parallel: int = Field(1, ge=1)
    gateways: int = Field(1, ge=1)
    replica_timeout: float = Field(TAKEN_SECONDS, gt=0)
    pause: float = Field(0, ge=0, le=1)
    load_factor: float = Field(FACTOR, gt=1)
    spare: int = Field(SPARE, ge=1)
    prefix_routing: bool = True

    @property
    def command_line(self) -> list[str]:
        """The options of `tiny-llm serve`, as it takes them."""
        words = []
        given: dict[str, Any] = dict(self.model_extra or {})
        if self.tensor_parallel > 1:
            given["tensor_parallel"] = self.tensor_parallel
        for name, value in given.items():
            if name in DECIDED:
                raise Refusal(f"{name}: is decided by {DECIDED[name]}")
            option = f"--{name.replace('_', '-')}"
            for each in value if isinstance(value, list) else [value]:
                if str(each).lower() == "true":
                    words.append(option)
                elif str(each).lower() != "false":
                    words.append(f"{option}={each}")
        return words


class StrictParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refusal(message)


def parse(command_line: list[str]) -> tuple[argparse.Namespace, dict[str, str]]:
    """The options of `tiny-llm serve`, and what each name of a model loads; Refusal for wrong ones."""
    parser = StrictParser("tiny-llm serve", allow_abbrev=False)
    add_arguments(parser)
    options = parser.parse_args(command_line)
    names = model_names(options.models or ["tiny"])
    check_draft(options, len(names))
    return options, names
