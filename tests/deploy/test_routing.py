"""Prefixes find their replica again, and no replica gets much more than its share."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_llm.deploy.routing import FACTOR, SPARE, LoadBound

NAMES = [f"replica-{number}" for number in range(8)]
prefixes = st.binary(min_size=1, max_size=16)
loads = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 40), min_size=1)


def free(names: list[str] = NAMES) -> dict[str, int]:
    return dict.fromkeys(names, 0)


@given(prefixes | st.none(), loads)
def test_every_replica_is_in_the_order_once(prefix, loads):
    assert sorted(LoadBound().order(prefix, loads)) == sorted(loads)


@given(prefixes, st.sampled_from(NAMES))
def test_a_lost_replica_moves_only_its_own_prefixes(prefix, lost):
    before = LoadBound().order(prefix, free())
    after = LoadBound().order(prefix, free([name for name in NAMES if name != lost]))
    assert after == [name for name in before if name != lost]


@given(prefixes, loads)
def test_the_first_replica_has_room(prefix, loads):
    first = LoadBound().order(prefix, loads)[0]
    mean = (sum(loads.values()) + 1) / len(loads)
    assert loads[first] < max(SPARE, FACTOR * mean + 1)


@given(prefixes, st.dictionaries(st.sampled_from(NAMES), st.integers(0, SPARE - 1), min_size=1))
def test_a_few_requests_move_no_prefix(prefix, loads):
    assert LoadBound().order(prefix, loads) == LoadBound().order(prefix, dict.fromkeys(loads, 0))


def test_one_prompt_that_everybody_sends_spreads():
    loads = free()
    for _ in range(400):
        loads[LoadBound().order(b"popular", loads)[0]] += 1
    assert max(loads.values()) <= FACTOR * 400 / len(NAMES) + 1


def test_prefixes_spread_evenly():
    owners = Counter(LoadBound().order(str(number).encode(), free())[0] for number in range(4000))
    assert all(400 < count < 600 for count in owners.values())


def test_without_a_prefix_the_least_loaded_one_is_first():
    assert LoadBound().order(None, {"a": 3, "b": 1, "c": 2}) == ["b", "c", "a"]


def hit_rate(routed: bool, conversations: int = 50, turns: int = 5, replicas: int = 4) -> float:
    """Of prompts whose turns add one unit each, where a replica keeps what it has computed."""
    known = [Counter[int]() for _ in range(replicas)]
    choose = random.Random(3)
    hits = asked = 0
    for turn in range(1, turns + 1):
        for conversation in range(conversations):
            if routed:
                names = free([str(number) for number in range(replicas)])
                chosen = int(LoadBound().order(str(conversation).encode(), names)[0])
            else:
                chosen = choose.randrange(replicas)
            hits += known[chosen][conversation]
            asked += turn
            known[chosen][conversation] = turn
    return hits / asked


def test_the_hit_rate_of_conversations_is_twice_that_of_random_routing():
    assert hit_rate(routed=True) == pytest.approx(2 / 3)
    assert hit_rate(routed=True) >= 2 * hit_rate(routed=False)
