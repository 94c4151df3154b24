"""Starts the other ranks, on this machine or by ssh on others, and joins their group."""

from __future__ import annotations

import atexit
import faulthandler
import ipaddress
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..errors import ArgumentError, RankLost, UnsupportedError
from ..loading.checkpoint import check_ranks
from ..loading.progress import Progress
from ..runtime.extension import load_extension
from ..runtime.gpu import computes_on_gpu, is_cuda
from ..runtime.ranks import Division, Ranks, join_nccl, join_ring
from ..runtime.version import version
from .leader import Leader, RankProcess
from .messages import Kind, json_frame

MOST_RANKS = 64
JOIN_SECONDS = 60  # for MLX to connect all ranks
THIS = ""  # this machine, in a list of those of the ranks
HERE = ("localhost", "127.0.0.1", "::1")
FOLLOWER = "tiny_llm.engine.follower"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine for one rank: what ssh calls it, and its address for the others."""

    ssh: str
    ip: str

    @property
    def is_here(self) -> bool:
        return self.ssh in HERE


@dataclass(frozen=True, slots=True)
class Group:
    """How many ranks a model is divided among, and how. `hosts` is None for this machine."""

    kind: Division
    size: int
    hosts: tuple[Host, ...] | None = None

    @property
    def argument(self) -> str:
        """What asked for it."""
        return f"{self.kind}_parallel"


def read_group(tensor: int | None, pipeline: int | None, hostfile: Path | None) -> Group | None:
    """The group of these options, each checked; None for a single process."""
    if tensor is not None and pipeline is not None:
        raise ArgumentError("", "pipeline_parallel", pipeline, "no tensor_parallel beside it")
    kind: Division = "pipeline" if tensor is None else "tensor"
    argument, size = f"{kind}_parallel", pipeline if tensor is None else tensor
    if size is None:
        if hostfile is not None:
            raise ArgumentError("", "hostfile", hostfile, "tensor_parallel or pipeline_parallel beside it")
        return None
    if type(size) is not int or not 1 <= size <= MOST_RANKS:
        raise ArgumentError("", argument, size, f"a number from 1 to {MOST_RANKS}")
    hosts = None if hostfile is None else read_hostfile(hostfile)
    if hosts is not None and len(hosts) != size:
        raise ArgumentError("", argument, size, f"{len(hosts)}, the number of hosts in {hostfile}")
    return None if size == 1 else Group(kind, size, hosts)


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts of a file for `mlx.launch`: [{"ssh": "name", "ips": ["10.0.0.1"]}, ...], this one first."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError("", "hostfile", path, f"a file that can be read: {error.strerror}") from error
    except ValueError as error:
        raise ArgumentError("", "hostfile", path, f"JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ArgumentError("", "hostfile", path, "a list of hosts")
    return tuple(_host(f"hostfile[{number}]", entry) for number, entry in enumerate(entries))


def _host(place: str, entry: Any) -> Host:
    expected = '{"ssh": a name, "ips": [its address]}'
    if not isinstance(entry, dict) or not isinstance(entry.get("ssh"), str):
        raise ArgumentError("", place, entry, expected)
    ssh, ips = entry["ssh"], entry.get("ips")
    if not isinstance(ips, list) or not ips or ssh.startswith("-") or not ssh:
        raise ArgumentError("", place, entry, expected)
    try:
        return Host(ssh, str(ipaddress.IPv4Address(ips[0])))
    except ValueError:
        raise ArgumentError("", f"{place}.ips", ips[0], "an IPv4 address") from None


def start_ranks(
    group: Group,
    name: str,
    dtype: str,
    *,
    offline: bool = False,
    threads: str | None = None,
    progress: Progress | None = None,
) -> tuple[Ranks, Leader]:
    """Start the other ranks, which load the model of this name, and join them as rank 0.

    The group is closed when this process ends; RankLost if a rank does not start. `threads` are those of each
    rank; None divides the cores among the ranks of a machine.
    """
    device = "gpu" if computes_on_gpu() else "cpu"
    backend = "nccl" if device == "gpu" and is_cuda() else "ring"
    if backend == "nccl" and group.kind == "pipeline":
        raise UnsupportedError("", "pipeline_parallel", group.size, "tensor_parallel: NCCL has no pipelines")
    if Ranks.joined:
        raise UnsupportedError("", group.argument, group.size, "one model on several ranks in a process")
    hosts = group.hosts or (Host("localhost", "127.0.0.1"),) * group.size
    check_ranks(name, group.kind, group.size, offline=offline or None, progress=progress)
    machines = [THIS if host.is_here or host.ssh == hosts[0].ssh else host.ssh for host in hosts]
    here = machines.count(THIS)
    if device == "gpu" and here > mx.device_count(mx.gpu):
        expected = f"at most {mx.device_count(mx.gpu)}, the GPUs of this machine"
        raise ArgumentError("", group.argument, group.size, expected)
    if device == "cpu":
        divide_threads(threads, here)
    leader = _leader(hosts[0].ip, group)
    processes: dict[int, RankProcess] = {}
    try:
        for rank in range(1, group.size):
            processes[rank] = _start(rank, hosts[rank], machines, leader)
        said = leader.accept(processes)
        for rank, greeting in said.items():
            if greeting.get("version") != version():
                raise RankLost(f"rank {rank} has version {greeting.get('version')}, rank 0 {version()}")
        addresses = [f"{hosts[0].ip}:{free_port(hosts[0].ip)}"]
        addresses += [f"{hosts[rank].ip}:{said[rank]['port']}" for rank in range(1, group.size)]
        model = {"name": name, "dtype": dtype, "offline": offline, "device": device}
        model |= {"threads": threads, "machines": machines}
        joined = {"kind": group.kind, "backend": backend, "addresses": addresses, "model": model}
        leader.send(json_frame(Kind.JOIN, joined))
        ranks = join(group.kind, backend, 0, addresses)
        leader.joined()
    except BaseException:
        leader.close()
        raise
    atexit.register(leader.close_at_exit)
    return ranks, leader


def divide_threads(threads: str | None, ranks: int) -> None:
    """Use these threads; None: the cores are divided among the ranks of a machine."""
    native = load_extension()
    if threads is None and "TINY_LLM_THREADS" not in os.environ:
        threads = str(max(native.cpu_threads()[0] // ranks, 1))
    if threads is not None:
        native.set_cpu_threads(threads)


def _leader(ip: str, group: Group) -> Leader:
    try:
        return Leader(ip, group.size)
    except OSError as error:
        problem = f"an address of this machine: {error.strerror}"
        raise ArgumentError("", "hostfile[0].ips", ip, problem) from error


def join(kind: Division, backend: str, rank: int, addresses: list[str]) -> Ranks:
    """Join MLX's group. A process that waits for a lost one there can do nothing else, so it ends."""
    faulthandler.dump_traceback_later(JOIN_SECONDS, exit=True)
    try:
        return (join_nccl if backend == "nccl" else join_ring)(kind, rank, addresses)
    finally:
        faulthandler.cancel_dump_traceback_later()


def free_port(host: str) -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _start(rank: int, host: Host, machines: Sequence[str], leader: Leader) -> RankProcess:
    """The process of a rank; it reads the token from standard input, which nobody else can see."""
    is_here = machines[rank] == THIS
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if is_here else [""]
    place = machines[:rank].count(machines[rank])  # among the ranks of its machine
    gpu = str(place) if gpus == [""] else gpus[place % len(gpus)]
    command = ["env", f"CUDA_VISIBLE_DEVICES={gpu}"]
    command += [sys.executable, "-m", FOLLOWER, leader.address, str(rank), host.ip]
    if not is_here:
        line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
        command = ["ssh", "-o", "BatchMode=yes", host.ssh, line]
    # A group of its own: Ctrl-C is for rank 0, which lets its requests finish.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
    assert process.stdin is not None
    process.stdin.write(f"{leader.token}\n".encode())
    process.stdin.close()
    return process
