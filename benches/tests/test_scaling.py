"""`bench scaling`: a simulation that loses no request, and shows what its parts are for."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from benches.cases.scaling import Cluster, Simulation
from benches.cases.stations import Cores, Costs, Station
from benches.cases.traffic import StepTimes, Workload, between, step_times
from benches.report.pages import SCALING
from benches.report.scaling import scaling_page, scaling_picture
from benches.report.tables import Record
from benches.scaling import ENGINE, MODEL, main, simulated
from tiny_llm.scheduler.budget import LONGEST_STEP

TIMES = StepTimes({1: 0.004, 8: 0.01, 64: 0.04}, {512: 0.1})
LOAD = Workload(rate=60, requests=2000, conversations=200)


def simulate(cluster: Cluster, workload: Workload = LOAD) -> Simulation:
    return Simulation(TIMES, cluster, workload).run()


@pytest.fixture(scope="module")
def recorded() -> Record:
    return json.loads(SCALING.read_text())  # type: ignore[no-any-return]


def test_points_are_joined_by_lines_from_the_origin() -> None:
    points = {2: 4.0, 4: 5.0}
    assert [between(points, x) for x in (0, 1, 2, 3, 4, 6)] == [0, 2, 4, 4.5, 5, 6]


def test_a_step_reads_the_weights_once() -> None:
    assert TIMES.step(0, 1) == TIMES.step(1, 0) == 0.004
    assert TIMES.step(8, 256) == pytest.approx(0.01 + 0.05 - 0.004)


@pytest.mark.parametrize("answers", [1, 8, 64])
def test_prompts_beside_answers_make_no_step_longer_than_an_engine_allows(answers: int) -> None:
    tokens = TIMES.prompt_tokens(answers)
    assert TIMES.step(answers, tokens) <= LONGEST_STEP * TIMES.step(answers, 0)


def test_the_step_times_are_those_of_the_record_of_the_engine() -> None:
    times = step_times(json.loads(ENGINE.read_text()), MODEL)
    assert times.decode.keys() == {1, 8, 64}
    assert times.step(64, 0) == pytest.approx(0.0429, rel=0.01)
    assert times.step(0, 512) == pytest.approx(0.104, rel=0.01)


def test_turns_of_a_conversation_follow_each_other() -> None:
    turns: dict[int, int] = {}
    for _, conversation, turn in replace(LOAD, warm=False).arrivals():
        assert turn == turns.get(conversation, 0) + 1 <= LOAD.turns
        turns[conversation] = turn


@pytest.mark.parametrize("failures", [(), ((3.0, 4), (9.0, 10))], ids=["quiet", "failures"])
@pytest.mark.parametrize("rate", [60, 600], ids=["light", "heavy"])
def test_every_request_is_answered_or_has_an_error(
    failures: tuple[tuple[float, int], ...], rate: int
) -> None:
    done = simulate(Cluster(replicas=10, failures=failures, start=2.0), replace(LOAD, rate=rate))
    assert done.answered + done.refused + done.broken == LOAD.requests
    assert not any(done.loads.values())
    if rate == 60 and not failures:
        assert done.refused == done.broken == 0


def test_it_is_the_same_each_time() -> None:
    assert simulate(Cluster(replicas=5)).record() == simulate(Cluster(replicas=5)).record()


def test_prefix_routing_finds_pages_and_shortens_the_wait() -> None:
    routed = simulate(Cluster(replicas=10)).record()
    random = simulate(Cluster(replicas=10, prefix_routing=False)).record()
    assert routed["hit_rate"] >= 2 * random["hit_rate"]
    assert routed["first_token_p50"] < random["first_token_p50"] / 1.5


def test_the_number_of_replicas_follows_the_queue() -> None:
    heavy = replace(LOAD, rate=120)
    grown = simulate(Cluster(replicas=3, queue=8, most=20, delay=2.0, start=2.0), heavy).record()
    assert 3 < grown["replicas_at_end"] <= 20
    assert grown["first_token_p99"] < simulate(Cluster(replicas=3), heavy).record()["first_token_p99"]


def test_the_recorded_rows_are_those_of_the_simulation(recorded: Record) -> None:
    times = step_times(json.loads(ENGINE.read_text()), MODEL)
    by_rate = [row for row in recorded["rows"] if not row["what"]]
    assert max(row["rate"] for row in by_rate) == 10_000
    assert [row for row in simulated(times, (10, 100)) if not row["what"]] == by_rate[:4]


def test_the_page_and_its_picture_show_the_record(recorded: Record) -> None:
    text = "\n".join(f"<!-- table: {name} -->\nold\n<!-- end -->" for name in ("simulated", "real", "hits"))
    page = scaling_page(text, recorded)
    assert "old" not in page
    assert "| 10,000 |" in page
    assert scaling_picture(recorded).startswith("<?xml")


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["--quick"]) == 0
    assert "| 100 |" in capsys.readouterr().out


FEWER = replace(LOAD, requests=600)


def simulate_fewer(cluster: Cluster, alone: StepTimes | None = None) -> Simulation:
    return Simulation(TIMES, cluster, FEWER, alone).run()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.ended: dict[str, float] = {}

    def at(self, second: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (second, next(self._order), event))

    def end(self, name: str) -> Callable[[], None]:
        return lambda: self.ended.update({name: self.now})

    def run(self) -> dict[str, float]:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return {name: pytest.approx(second) for name, second in self.ended.items()}


def test_work_is_slower_while_there_is_more_of_it_than_cores() -> None:
    clock = Clock()
    cores = Cores(2, lambda: clock.now, clock.at)
    for name, seconds in (("a", 1.0), ("b", 1.0), ("c", 3.0)):
        cores.work(seconds, clock.end(name))
    clock.at(2.0, lambda: cores.work(0.5, clock.end("d")))
    assert clock.run() == {"a": 1.5, "b": 1.5, "d": 2.5, "c": 3.5}


def test_a_process_takes_one_event_after_another() -> None:
    clock = Clock()
    station = Station(Costs(), Cores(None, lambda: clock.now, clock.at))
    for name in "abc":
        station.take(0.25, clock.end(name))
    station.take(0, clock.end("free"))
    assert clock.run() == {"free": 0.0, "a": 0.25, "b": 0.5, "c": 0.75}


def test_enough_cores_and_no_costs_change_nothing() -> None:
    assert simulate_fewer(Cluster(replicas=5, cores=100)).record() == pytest.approx(
        simulate_fewer(Cluster(replicas=5)).record()
    )


def test_a_gateway_near_its_capacity_makes_the_first_token_late() -> None:
    events = FEWER.rate * FEWER.output  # a second
    idle, busy = (
        simulate_fewer(Cluster(replicas=10, front=(Costs(event=load / events),))).record()
        for load in (0.01, 0.95)
    )
    assert busy["first_token_p99"] > idle["first_token_p99"] + 0.01


def test_processes_take_time_from_engines_on_the_same_cores() -> None:
    cluster = Cluster(replicas=2, cores=2)
    slowed = replace(cluster, front=(Costs(0.002, 0.0005),), server=Costs(0.002, 0.0005))
    assert (
        simulate_fewer(slowed).record()["first_token_p50"]
        > 1.05 * simulate_fewer(cluster).record()["first_token_p50"]
    )


def test_an_engine_may_be_faster_while_the_others_are_idle() -> None:
    alone = StepTimes({1: 0.002, 8: 0.005, 64: 0.02}, {512: 0.05})
    cluster = Cluster(replicas=2, cores=2)
    faster, other = simulate_fewer(cluster, alone=alone).record(), simulate_fewer(cluster).record()
    assert faster["first_token_p50"] < other["first_token_p50"]


def test_a_request_on_its_way_into_a_lost_replica_is_sent_to_another_one() -> None:
    failures = ((3.0, 4), (6.0, 9))
    done = simulate_fewer(Cluster(replicas=10, failures=failures, start=2.0, server=Costs(0.05, 0.0001)))
    assert done.answered + done.refused + done.broken == FEWER.requests
    assert not any(done.loads.values())
