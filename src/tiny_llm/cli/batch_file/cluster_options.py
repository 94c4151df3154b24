"""The options of `batch` that name a cluster of Ray, and what they ask of it."""

import argparse
from collections.abc import Mapping, Sequence

from .. import arguments
from ..exit_codes import Failure, Refusal, flag

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
        help="CPUs of each engine, which has as many threads (default: its share of the free ones of a node, "
        "of the node with the fewest)",
    )  # fmt: skip


def refuse_cluster(options: argparse.Namespace, reason: str) -> None:
    """Refuse these options where they have no effect."""
    for name in NAMES:
        if getattr(options, name) is not None:
            raise Refusal(f"{flag(name)}: {reason}")


def share(
    options: argparse.Namespace, cluster: Mapping[str, float], free: Sequence[Mapping[str, float]]
) -> tuple[int, int, int]:
    """How many engines, and the CPUs and GPUs of each, of those that are free on each node of the cluster.

    Refusal if these are fewer than the options say, Failure if there are none: Ray would wait for them.
    """
    nodes = [node for node in free if node.get("CPU", 0) >= 1]
    if not nodes:
        raise Failure("--ray: no CPU of the cluster is free")
    gpus = 0 if options.device == "cpu" else int(sum(node.get("GPU", 0) for node in nodes))
    if not gpus and cluster.get("GPU") and options.device != "cpu":
        raise Failure("--ray: no GPU of the cluster is free; --device cpu uses none")
    engines = options.ray_engines or gpus or len(nodes)
    on_a_node = -(-engines // len(nodes))
    smallest = min(int(node["CPU"]) for node in nodes)
    cpus = options.ray_cpus or max(smallest // on_a_node, 1)
    most = sum(int(node["CPU"]) // cpus for node in nodes)
    if gpus and engines > gpus:
        raise Refusal(f"--ray-engines: got {engines}, expected at most the {gpus} free GPUs of the cluster")
    if engines > most:
        place = f"the free CPUs of {len(nodes)} nodes have room for {most}"
        raise Refusal(f"--ray: {engines} engines with {cpus} CPUs each do not fit: {place}")
    return engines, cpus, int(gpus > 0)
