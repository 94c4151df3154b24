"""`pdm bench scaling`: many replicas behind our router, simulated; with --real, two of them on Ray as well.

The simulation has the rules of `tiny_llm.deploy` and the step times of a record of `pdm bench engine`. --real
measures step times here, plays requests to real replicas, simulates the same requests, and prints the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean, median
from subprocess import PIPE, Popen

from benches.cases.models import SMALL
from benches.cases.scaling import Cluster, Simulation
from benches.cases.traffic import StepTimes, Workload, step_times
from benches.harness import machine
from benches.report.scaling import hits_table, real_table, simulated_table
from benches.report.tables import Record
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm.deploy.routing import QUEUED

ENGINE = machine.ROOT / "benches" / "results" / "xeon-amx" / "engine.json"
MODEL = "qwen2-0.5b bf16"
RATES, QUICK_RATES = (10, 100, 1000, 10_000), (10, 100)
OF_A_REPLICA = 6  # requests a second
CONVERSATIONS = 20  # of a replica at a time
FEWEST, EACH = 3000, 30  # requests of a simulation: at least, and for each replica
SECONDS = 40  # of those with an event
REAL = Workload(rate=2.0, requests=140, conversations=20, first=96, added=32, turns=4, output=16, warm=False)
HITS = Workload(rate=8.0, requests=250, conversations=50, first=192, added=128, output=4, warm=False)
REPLICAS, HITS_REPLICAS = 2, 4
KINDS = ("decode", "prefill")
RUNS = 3  # of real replicas: the 99th percentile of one is one or two requests


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    engine = json.loads(options.engine.read_text())
    times = step_times(engine, MODEL)
    record: Record = {
        "benchmark": "scaling",
        **machine.describe(),
        "engine": {"cpu": engine["cpu"], "model": MODEL, **asdict(times)},
        "rows": list(simulated(times, QUICK_RATES if options.quick else RATES)),
    }
    tables = [simulated_table(record)]
    if options.real:
        record |= real()
        tables += [real_table(record), hits_table(record)]
    print("\n\n".join(tables))
    if options.json:
        write_whole(options.json, json.dumps(record, indent=1) + "\n")
    return 0


def simulated(times: StepTimes, rates: Sequence[int]) -> Iterator[Record]:
    """With and without routing by prefixes at each rate, then failures, then a number that grows."""
    for rate in rates:
        for prefix_routing in (True, False):
            yield row(times, "", rate, Cluster(replicas=replicas_of(rate), prefix_routing=prefix_routing))
    rate = rates[min(2, len(rates) - 1)]
    lost = max(replicas_of(rate) // 10, 1)
    long = rate * SECONDS
    yield row(times, f"{lost} lost", rate, Cluster(replicas=replicas_of(rate), failures=((5.0, lost),)), long)
    grows = Cluster(replicas=replicas_of(rate) // 2, queue=QUEUED, most=2 * replicas_of(rate))
    yield row(times, "autoscaling", rate, grows, long)


def replicas_of(rate: int) -> int:
    return max(-(-rate // OF_A_REPLICA), 2)


def row(times: StepTimes, what: str, rate: int, cluster: Cluster, requests: int = 0) -> Record:
    replicas = replicas_of(rate)
    requests = requests or max(FEWEST, EACH * replicas)
    workload = Workload(rate=rate, requests=requests, conversations=CONVERSATIONS * replicas)
    found = Simulation(times, cluster, workload).run().record()
    return {
        "what": what,
        "rate": rate,
        "replicas": cluster.replicas,
        "routed": cluster.prefix_routing,
        **found,
    }


def real() -> Record:
    """The same requests simulated and answered by replicas, and the hits with and without routing."""
    from benches.contestants.http.processor_time import measured_costs
    from benches.contestants.http.replicas import on_ray, play

    before = [measured_here(engines) for engines in (1, REPLICAS)]
    workloads = [replace(REAL, seed=seed) for seed in range(RUNS)]
    with on_ray(REPLICAS, 1, model=SMALL, kv_memory="256M") as address:
        costs = measured_costs(address)
        played = [play(address, workload) for workload in workloads]
    after = [measured_here(engines) for engines in (1, REPLICAS)]  # as the machine may have changed
    alone, times = (mean_times(pair) for pair in zip(before, after, strict=True))
    *front, server = costs.values()
    cores = len(os.sched_getaffinity(0))
    cluster = Cluster(replicas=REPLICAS, front=tuple(front), server=server, cores=cores)
    found = [Simulation(times, cluster, workload, alone).run().record() for workload in workloads]
    hits = {}
    for name, routing in (("routed", True), ("random", False)):
        with on_ray(HITS_REPLICAS, 1, model="tiny", prefix_routing=routing) as address:
            hits[name] = play(address, HITS)
    return {
        "times": asdict(times),
        "times_alone": asdict(alone),
        "costs": {name: asdict(each) for name, each in costs.items()},
        "simulated": medians(found),
        "real": medians(played),
        "runs": [{"simulated": one, "real": other} for one, other in zip(found, played, strict=True)],
        "hits": hits,
    }


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def measured_here(engines: int) -> StepTimes:
    """With so many engines at once."""
    program = [sys.executable, "-m", "benches.contestants.engine.step_times", SMALL, "1"]
    running = [Popen(program, stdin=PIPE, stdout=PIPE, text=True, cwd=machine.ROOT) for _ in range(engines)]
    for each in running:
        assert each.stdout is not None
        each.stdout.readline()
    with ThreadPoolExecutor() as threads:
        found = [json.loads(out) for out, _ in threads.map(lambda each: each.communicate("\n"), running)]
    return mean_times(
        [StepTimes(*({int(n): x for n, x in each[kind].items()} for kind in KINDS)) for each in found]
    )


def mean_times(found: Sequence[StepTimes]) -> StepTimes:
    kinds = ([getattr(each, kind) for each in found] for kind in KINDS)
    return StepTimes(*({n: mean(each[n] for each in of_kind) for n in of_kind[0]} for of_kind in kinds))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pdm bench scaling", description=__doc__)
    parser.add_argument(
        "--engine", type=Path, default=ENGINE, metavar="FILE", help="record of `bench engine`"
    )
    parser.add_argument("--quick", action="store_true", help="low rates only")
    parser.add_argument("--real", action="store_true", help="also real replicas, which need the extra `ray`")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record")
    return parser
