"""Frames between ranks, and strangers who connect to rank 0."""

from __future__ import annotations

import socket
import subprocess
import sys
from array import array

import pytest

from tiny_llm.distributed import leader as leader_module
from tiny_llm.distributed.leader import Leader
from tiny_llm.distributed.messages import HEADER, MAX_FRAME, Frame, Kind, json_frame, read_frame, write_frame
from tiny_llm.engine.ranks import FollowedStates, write_step
from tiny_llm.errors import RankLost
from tiny_llm.scheduler import Plan, RequestState, Row


def test_frames_arrive_as_they_were_sent() -> None:
    one, other = socket.socketpair()
    frames = [
        json_frame(Kind.HELLO, {"rank": 1}),
        Frame(Kind.BEAT),
        Frame(Kind.STEP, array("i", [1, -2]).tobytes()),
    ]
    for frame in frames:
        write_frame(one, frame)
    got = [read_frame(other) for _ in frames]
    assert got == frames
    assert got[0].json() == {"rank": 1}
    assert list(got[2].numbers()) == [1, -2]
    one.close()
    with pytest.raises(EOFError):
        read_frame(other)


@pytest.mark.parametrize("header", [HEADER.pack(MAX_FRAME + 1, Kind.STEP), HEADER.pack(4, 99)])
def test_a_frame_that_is_too_large_or_of_no_kind_is_refused(header: bytes) -> None:
    one, other = socket.socketpair()
    one.sendall(header + b"abcd")
    with pytest.raises(RankLost, match="expected at most"):
        read_frame(other)


def test_a_step_arrives_as_it_was_planned() -> None:
    state = RequestState("a", [1, 2, 3], 4)
    row = Row(state, 5, array("i", [7, 8]), 2, array("i", [0, 3, 1]), 8)
    plan = Plan((row, row._replace(start=6, logits=0)), ((1, 2), (3, 4)))
    followed = FollowedStates()
    numbers = array("i", [1, 0])  # ahead, and no request has ended
    read, is_ahead = followed.read_step(Frame(Kind.STEP, write_step(numbers, plan, {state: 9})))
    assert is_ahead
    assert read.copies == plan.copies
    assert [row[1:] for row in read.rows] == [row[1:] for row in plan.rows]
    assert read.rows[0].state is read.rows[1].state
    followed.end(iter([1, 9]))
    assert read.rows[0].state.status == "finished"


def test_a_stranger_is_not_taken_for_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_module, "HELLO_SECONDS", 1.0)
    leader = Leader("127.0.0.1", 2)
    host, port = leader.address.split(":")
    strangers = []
    guesses = [
        json_frame(Kind.HELLO, {"token": "guessed", "rank": 1}),
        json_frame(Kind.HELLO, {"token": "é", "rank": 1}),
        json_frame(Kind.HELLO, {"token": leader.token, "rank": 7}),
        json_frame(Kind.READY, {"token": leader.token, "rank": 1}),
        Frame(Kind.HELLO, b"[" * 4000),
        Frame(Kind.HELLO, b" " * 5000),
        Frame(Kind.HELLO, b"1"),
    ]
    for guess in guesses:
        stranger = socket.create_connection((host, int(port)))
        write_frame(stranger, guess)
        strangers.append(stranger)
    with pytest.raises(RankLost, match="rank 1 has not connected within 1 s"):
        leader.accept({})
    leader.close()


def test_a_byte_now_and_then_is_no_greeting() -> None:
    one, other = socket.socketpair()
    one.sendall(HEADER.pack(100, Kind.HELLO) + b"{")
    with pytest.raises(TimeoutError):
        read_frame(other, deadline=0.0)


def test_a_follower_that_stays_behind_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(leader_module.time, "monotonic", lambda: now[0])
    leader = Leader("127.0.0.1", 2)
    leader._sent = 5
    assert leader._slowness(1, 5) is None
    leader._sent = 6
    now[0] += 500
    assert leader._slowness(1, 5) is None  # a long step
    leader._sent = 7
    assert leader._slowness(1, 5) is None  # its sign of life may have been on its way
    now[0] += 9
    assert leader._slowness(1, 5) == "has not finished a step within 8 s"
    assert leader._slowness(1, 6) is None
    now[0] += 601
    assert leader._slowness(1, 6) == "has not finished a step within 600 s"
    leader.close()


def test_a_process_that_ends_at_once_is_reported_with_its_code() -> None:
    leader = Leader("127.0.0.1", 2)
    with pytest.raises(RankLost, match="rank 1 has ended before it connected, with exit code 7"):
        leader.accept({1: subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])})
    leader.close()
