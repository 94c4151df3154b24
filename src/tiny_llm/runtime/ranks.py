"""The processes that compute one model together, each with a share of its weights: its ranks."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import mlx.core as mx

from ..errors import ArgumentError, UnsupportedError

Division = Literal["tensor", "pipeline"]


@dataclass(frozen=True, eq=False)
class Ranks:
    """One of `size` processes: rank 0 leads. Collective operations must come in one order in all of them.

    kind: "tensor": each rank has a part of each matrix. "pipeline": each rank has some of the layers, the
        last rank the first ones, so that rank 0 has the logits.
    """

    joined: ClassVar[bool] = False  # MLX has one group in a process

    kind: Division
    rank: int
    size: int
    group: Any

    def sum(self, x: mx.array) -> mx.array:
        """The sum of the arrays of all ranks, in each of them."""
        return mx.distributed.all_sum(x, group=self.group)

    def gather(self, x: mx.array) -> mx.array:
        """The arrays of all ranks, [size, *shape of x], in each of them."""
        return mx.distributed.all_gather(x[None], group=self.group)

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank has the embedding, and the first layers."""
        return self.kind == "tensor" or self.rank == self.size - 1

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank has the last layers, and the logits."""
        return self.kind == "tensor" or self.rank == 0

    def receive(self, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
        """The output of the stage before."""
        return mx.distributed.recv(shape, dtype, self.rank + 1, group=self.group)

    def send(self, x: mx.array) -> mx.array:
        """Give `x` to the stage after; it is sent when the result is evaluated."""
        return mx.distributed.send(x, self.rank - 1, group=self.group)


def join_ring(kind: Division, rank: int, addresses: Sequence[str]) -> Ranks:
    """This process as one of a ring over TCP; `addresses` has "host:port" of each rank.

    It waits for its neighbours, and lets no other thread of Python run meanwhile.
    """
    if not mx.distributed.is_available("ring"):
        raise UnsupportedError("", "backend", "ring", "an MLX that is built with it")
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[address] for address in addresses]))
        os.environ |= {"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}
        try:
            group = mx.distributed.init(strict=True, backend="ring")
        finally:  # they are not for the children of this process
            del os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"]
    return _checked(kind, rank, len(addresses), group)


def join_nccl(kind: Division, rank: int, addresses: Sequence[str]) -> Ranks:
    """This process as one of a group of GPUs; the first of `addresses` is where they meet.

    It must be called before MLX has used the GPU, which reads the setting of CUDA graphs once.
    """
    if kind == "pipeline":
        raise UnsupportedError(
            "", "backend", "nccl", "ring: MLX's NCCL sends nothing from one rank to another"
        )
    host, _, port = addresses[0].rpartition(":")
    os.environ |= {"MLX_RANK": str(rank), "MLX_WORLD_SIZE": str(len(addresses))}
    os.environ |= {"NCCL_HOST_IP": host, "NCCL_PORT": port}
    os.environ.setdefault("MLX_USE_CUDA_GRAPHS", "0")  # in a graph, a sum takes twice as long to start
    return _checked(kind, rank, len(addresses), mx.distributed.init(strict=True, backend="nccl"))


def _checked(kind: Division, rank: int, size: int, group: Any) -> Ranks:
    """MLX may give a group of one process, which would answer with a part of the weights."""
    if (group.rank(), group.size()) != (rank, size):
        got = f"rank {group.rank()} of {group.size()}"
        raise ArgumentError("", "group", got, f"rank {rank} of {size}")
    Ranks.joined = True
    return Ranks(kind, rank, size, group)
