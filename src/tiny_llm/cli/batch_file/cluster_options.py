"""The options of `batch` that name a cluster of Ray."""

import argparse

from .. import arguments
from ..exit_codes import Refusal, flag

LOCAL = "local"  # Ray's word for a cluster of its own
NAMES = ("ray", "ray_engines", "ray_cpus")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cluster, for a file of requests (pip install 'tiny-llm[serve,ray]')")
    group.add_argument(
        "--ray", nargs="?", const=LOCAL, metavar="ADDRESS",
        help="answer by Ray Data, on the cluster at this address: 10.0.0.1:6379, of which this machine "
        f"is a node; auto is the one that runs here, {LOCAL} one that begins and ends with this command "
        f"(default: {LOCAL})",
    )  # fmt: skip
    group.add_argument(
        "--ray-engines", type=arguments.integer(1), metavar="N",
        help="engines, each with a model of its own (default: one for each GPU, else for each node)",
    )  # fmt: skip
    group.add_argument(
        "--ray-cpus", type=arguments.integer(1), metavar="N",
        help="CPUs of each engine, which has as many threads (default: its share of the smallest node)",
    )  # fmt: skip


def refuse_cluster(options: argparse.Namespace, reason: str) -> None:
    """Refuse these options where they have no effect."""
    for name in NAMES:
        if getattr(options, name) is not None:
            raise Refusal(f"{flag(name)}: {reason}")
