"""The program of a rank that follows: it loads its share of a model, and computes each step of rank 0."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import mlx.core as mx

from ..course.model import load_model
from ..distributed.connection import LeaderConnection
from ..distributed.launch import divide_threads, free_port, join
from ..distributed.messages import Frame, Kind, json_frame
from ..errors import LoadError, RankLost
from ..runtime.device import on_device
from ..runtime.gpu import default_attention
from ..runtime.version import version
from .dense import DenseRunner
from .ranks import FollowedStates, follow_step
from .runner import Runner, make_runner
from .sizes import size_of


def main(address: str, rank: str, host: str) -> None:
    """Follow rank 0 at this address until it has finished."""
    token = sys.stdin.readline().strip()
    try:
        port = free_port(host)
    except OSError as error:
        sys.exit(f"tiny-llm: --hostfile: {host} is no address of this machine: {error.strerror}")
    hello = {"token": token, "rank": int(rank), "version": version(), "port": port}
    connection = LeaderConnection(address, hello)
    try:
        follow(connection, int(rank))
    except (LoadError, RuntimeError, ValueError, MemoryError) as error:
        with suppress(OSError):
            connection.send(json_frame(Kind.FAULT, {"reason": f"has failed: {error}"}))
        sys.exit(1)


def follow(connection: LeaderConnection, rank: int) -> None:
    frames = connection.frames()
    first = next(frames, None)
    if first is None:  # another rank did not come
        return
    joined = first.json()
    model = joined["model"]
    device = model.pop("device")
    if device == "cpu":
        machines = model["machines"]
        divide_threads(model["threads"], machines.count(machines[rank]))
    with on_device(device):
        ranks = join(joined["kind"], joined["backend"], rank, joined["addresses"])
        connection.joined()
        loaded, _ = load_model(
            model["name"],
            getattr(mx, model["dtype"]),
            offline=model["offline"] or None,
            ranks=ranks,
            enable_flash_attn=default_attention(),
        )
        connection.send(Frame(Kind.READY))
        runner: Runner | DenseRunner | None = None
        states = FollowedStates()
        for frame in frames:
            if frame.kind is Kind.START:
                runner = None  # there may be no room for both
                runner, states = _start(loaded, frame.json()), FollowedStates()
            elif runner is None:
                raise RankLost(f"rank 0 has sent {frame.kind.name} before START")
            elif frame.kind is Kind.REST:
                states.end(iter(frame.numbers()))
                runner.rest()
            elif frame.kind is Kind.STEP:
                follow_step(runner, ranks, *states.read_step(frame))
                connection.finished += 1


def _start(model: Any, start: dict[str, Any]) -> Runner | DenseRunner:
    return make_runner(model, size_of(model, **start["pages"]), **start["settings"])


if __name__ == "__main__":
    main(*sys.argv[1:])
