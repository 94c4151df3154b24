"""Week 4, day 8: measuring a server. Four latencies and goodput, random arrivals, and an open loop.

There is no server: answers are made by hand, and seconds pass at once.
"""

import asyncio
import math
import random
from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from tiny_llm_tools.benchmark.clock import Samples
from tiny_llm_tools.benchmark.serving.answer import STOPPED, Answer
from tiny_llm_tools.benchmark.serving.client import ServeRequest
from tiny_llm_tools.benchmark.serving.load import run_load
from tiny_llm_tools.benchmark.serving.metrics import is_good, values_of
from tiny_llm_tools.benchmark.serving.workload import arrivals

from .support.virtual_time import at_once, now

# Task 1: latencies, percentiles and goodput


def answer(begin, *times, end=None, tokens=None):
    """A complete answer with an event at each of the times; one token each, and no event after the text."""
    return Answer(10, begin, list(times), end or times[-1], tokens or len(times), True, None)


# Sent at 2 s. Text at 3, 3.5 and 5 s: 5 tokens, two of which came together with others. The last event, at
# 6 s, has no text: it says why the answer ended.
USUAL = answer(2.0, 3.0, 3.5, 5.0, end=6.0, tokens=5)


def test_task_1_ttft_is_the_time_to_the_first_text():
    """From sending."""
    assert USUAL.ttft == 3.0 - 2.0


def test_task_1_latency_is_the_time_to_the_last_event():
    """From sending, with or without text."""
    assert USUAL.latency == 6.0 - 2.0


def test_task_1_tpot_counts_tokens_not_events():
    """Each after the first; a single token has none, and an event may come without any."""
    assert USUAL.tpot == (6.0 - 3.0) / (5 - 1)
    assert answer(0.0, 1.0).tpot is None
    assert Answer(10, 0.0, [1.0], 2.0, 0, True, None).tpot is None


def test_task_1_gaps_are_between_events():
    """Whatever number of tokens an event has."""
    assert USUAL.gaps == [0.5, 1.5]
    assert answer(0.0, 1.0).gaps == []


def test_task_1_values_of_all_answers_are_one_set():
    """All gaps for itl: a mean of means is no mean. A tpot that does not exist is none, not 0."""
    answers = [USUAL, answer(0.0, 0.25), answer(10.0, 12.0, 12.25)]
    assert values_of("ttft", answers) == [1.0, 0.25, 2.0]
    assert values_of("e2el", answers) == [4.0, 0.25, 2.25]
    assert values_of("tpot", answers) == [0.75, 0.25]
    assert values_of("itl", answers) == [0.5, 1.5, 0.25]


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft": 1000.0}, True),
        ({"ttft": 999.0}, False),
        ({"tpot": 750.0}, True),
        ({"tpot": 749.0}, False),
        ({"e2el": 3999.0}, False),
        ({"ttft": 1000.0, "tpot": 749.0}, False),
        ({}, True),
    ],
)
def test_task_1_a_good_request_is_within_all_its_limits(limits, good):
    """Milliseconds: here 1000 to the first token, 750 for each further one, 4000 in all."""
    assert is_good(USUAL, limits) is good


def test_task_1_a_single_token_is_good_in_tpot():
    """There was no further token to wait for."""
    assert is_good(answer(0.0, 1.0), {"tpot": 0.001})


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ((1.0, 2.0, 3.0), 0.5, 2.0),
        ((3.0, 1.0, 2.0), 1.0, 3.0),  # not in order
        ((1.0, 2.0, 4.0, 8.0), 0.5, 3.0),  # half way from 2 to 4
        ((0.0, 10.0), 0.99, 9.9),
        (tuple(map(float, range(101))), 0.99, 99.0),
        ((7.0,), 0.99, 7.0),
        ((5.0, 1.0), 0.0, 1.0),
    ],
)
def test_task_1_a_quantile_is_between_neighbours(values, q, expected):
    """The smallest value is at 0, the largest at 1, the others at equal distances, joined by lines."""
    assert Samples(values).quantile(q) == pytest.approx(expected)


# Task 2: arrivals


def gaps(rate=5.0, burstiness=1.0, seed=0, count=20_001):
    return [after - before for before, after in pairwise(arrivals(count, rate, burstiness, seed))]


def test_task_2_requests_arrive_one_after_the_other_from_0_on():
    """As many as were asked for."""
    times = arrivals(50, 5.0, 1.0, seed=7)
    assert (len(times), times[0]) == (50, 0.0)
    assert times == sorted(times)
    assert arrivals(1, 5.0, 1.0, seed=7) == [0.0]


def test_task_2_an_infinite_rate_sends_all_at_once():
    """No gap is drawn."""
    assert arrivals(3, math.inf, 1.0, seed=0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rate", [0.5, 5.0, 200.0])
@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_task_2_the_mean_gap_is_one_over_the_rate(rate, burstiness):
    """Bursts change when requests come, not how many."""
    assert fmean(gaps(rate, burstiness)) == pytest.approx(1 / rate, rel=0.05)


def test_task_2_a_poisson_process_forgets():
    """A gap is longer than t with probability exp(-rate t): 37 % exceed the mean, 14 % twice the mean."""
    found = gaps(burstiness=1.0)
    for times in (0.5, 1.0, 2.0):
        longer = sum(gap > times * 0.2 for gap in found) / len(found)
        assert longer == pytest.approx(math.exp(-times), abs=0.02)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_task_2_less_burstiness_has_more_bursts(burstiness):
    """The deviation of a gamma distribution is its mean over the root of its shape."""
    assert pstdev(gaps(burstiness=burstiness)) == pytest.approx(0.2 / math.sqrt(burstiness), rel=0.05)


def test_task_2_a_seed_repeats_its_arrivals():
    """Two servers are compared under the same load, whatever else has drawn numbers."""
    first = arrivals(50, 4.0, 1.0, seed=7)
    random.random()
    assert arrivals(50, 4.0, 1.0, seed=7) == first
    assert arrivals(50, 4.0, 1.0, seed=8) != first


# Task 3: an open loop


class Server:
    """A client and its server in one: request i, with i tokens, takes `seconds[i]`; None fails at once."""

    def __init__(self, *seconds):
        self.seconds = seconds
        self.requests = [ServeRequest("x", number, 1) for number in range(len(seconds))]
        self.running = self.most = 0

    clock = staticmethod(now)

    async def ask(self, request, answer):
        self.running += 1
        self.most = max(self.most, self.running)
        seconds = self.seconds[request.prompt_tokens]
        await asyncio.sleep(seconds or 0.0)
        self.running -= 1
        answer.times, answer.end = [now()], now()
        answer.failure = "refused" if seconds is None else None


def begins(run):
    return [answer.begin for answer in run.answers]


@at_once
async def test_task_3_each_request_is_sent_at_its_time():
    """Whether there are others or not."""
    server = Server(0.25, 0.25, 0.25, 0.25)
    run = await run_load(server, server.requests, [0.0, 1.0, 2.0, 4.5])
    assert begins(run) == [0.0, 1.0, 2.0, 4.5]
    assert [answer.prompt_tokens for answer in run.answers] == [0, 1, 2, 3]


@at_once
async def test_task_3_a_slow_answer_delays_no_other_request():
    """The stall of the chapter: 50 requests in 5 s, of which a loop that waits would send one."""
    server = Server(*(5.0 - number / 10 for number in range(50)))
    offsets = [number / 10 for number in range(50)]
    run = await run_load(server, server.requests, offsets)
    assert begins(run) == pytest.approx(offsets)
    assert median(answer.latency for answer in run.answers) == pytest.approx(2.55)


@at_once
async def test_task_3_a_run_ends_with_its_last_answer():
    """Its duration counts from the start to there: otherwise the throughput would be too high."""
    server = Server(10.0, 1.0)
    run = await run_load(server, server.requests, [0.5, 2.0])
    assert (run.duration, run.interrupted) == (10.5, False)
    assert [answer.failure for answer in run.answers] == [None, None]


@at_once
async def test_task_3_failed_requests_are_part_of_the_run():
    """And end no other."""
    server = Server(1.0, None, 1.0)
    run = await run_load(server, server.requests, [0.0, 0.25, 0.5])
    assert [answer.failure for answer in run.answers] == [None, "refused", None]


@at_once
async def test_task_3_progress_is_reported_at_each_end():
    """And once before."""
    server, reports = Server(3.0, 1.0), []

    def report(done, total):
        reports.append((now(), done, total))

    await run_load(server, server.requests, [0.0, 0.0], report=report)
    assert reports == [(0.0, 0, 2), (1.0, 1, 2), (3.0, 2, 2)]


@pytest.mark.parametrize("limit", [1, 2, 3, None])
@at_once
async def test_task_3_a_closed_loop_has_a_limit(limit):
    """Six requests of a second each."""
    server = Server(*[1.0] * 6)
    run = await run_load(server, server.requests, [0.0] * 6, limit)
    assert server.most == (limit or 6)
    assert run.duration == 6 / (limit or 6)


@at_once
async def test_task_3_waiting_for_a_place_is_in_no_latency():
    """That is why a closed loop shows throughput, and not ttft."""
    server = Server(1.0, 1.0, 1.0)
    run = await run_load(server, server.requests, [0.0] * 3, max_concurrency=1)
    assert begins(run) == [0.0, 1.0, 2.0]
    assert [answer.latency for answer in run.answers] == [1.0, 1.0, 1.0]


@at_once
async def test_task_3_a_run_that_is_stopped_returns_what_it_has():
    """Ctrl-C: answers that are not complete have failed, requests that were not sent are missing."""
    server = Server(1.0, 100.0, 1.0)
    task = asyncio.create_task(run_load(server, server.requests, [0.0, 2.0, 50.0]))
    await asyncio.sleep(10.0)
    task.cancel()
    run = await task
    assert (run.interrupted, run.duration) == (True, 10.0)
    assert [answer.failure for answer in run.answers] == [None, STOPPED]
