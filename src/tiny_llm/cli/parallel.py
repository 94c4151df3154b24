"""Options for a model that is divided among several processes."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx

from ..checks.arrays import dtype_name
from ..distributed.launch import Group, read_group, start_ranks
from ..distributed.leader import Leader
from ..errors import RefusedArgument
from ..loading.progress import Progress
from ..runtime.ranks import Ranks
from .arguments import integer
from .exit_codes import Refusal

NAMES = ("tensor_parallel", "pipeline_parallel", "hostfile")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("one model in several processes")
    group.add_argument(
        "--tensor-parallel", type=integer(1), metavar="N",
        help="divide every matrix among N processes, one for each GPU or machine (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--pipeline-parallel", type=integer(1), metavar="N",
        help="divide the layers among N processes, for machines with little memory; not on several GPUs",
    )  # fmt: skip
    group.add_argument(
        "--hostfile", type=Path, metavar="FILE",
        help="the machines of these processes, in the format of mlx.launch, this one first; ssh starts the "
        "others (default: all on this machine)",
    )  # fmt: skip


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The options of this module, and the threads of each process, as arguments of `LLM`."""
    return {name: value for name in (*NAMES, "threads") if (value := getattr(options, name)) is not None}


def group_of(options: argparse.Namespace) -> Group | None:
    """The group that the options ask for; None for a single process."""
    with naming_flags():
        return read_group(*(getattr(options, name, None) for name in NAMES))


def check_models(options: argparse.Namespace, number: int) -> None:
    """Refuse options that divide a model where there are several."""
    group = group_of(options)
    if group is not None and number > 1:
        raise Refusal(f"--{group.argument.replace('_', '-')}: divides one --model only")


def start(
    options: argparse.Namespace, group: Group | None, name: str, dtype: mx.Dtype, progress: Progress
) -> tuple[Ranks | None, Leader | None]:
    """The other processes of a model, which load their shares of it."""
    if group is None:
        return None, None
    offline = bool(options.offline)
    with naming_flags():
        threads = options.threads
        return start_ranks(
            group, name, dtype_name(dtype), offline=offline, threads=threads, progress=progress
        )


@contextmanager
def naming_flags() -> Iterator[None]:
    """Turn an error about an argument of this module into a Refusal that names the flag."""
    try:
        yield
    except RefusedArgument as error:
        name, bracket, rest = error.argument.partition("[")
        if name not in NAMES:
            raise
        raise Refusal(f"--{name.replace('_', '-')}{bracket}{rest}: {error.reason}") from error
