"""Time limits of requests and of a drain, by a clock of their own."""

import asyncio

import pytest

from tiny_llm.server.errors import ApiError
from tiny_llm.server.lifecycle import Lifecycle
from tiny_llm.server.waiting import Deadline

from ..support.virtual_time import at_once


@at_once
async def test_no_time_is_left_at_a_deadline() -> None:
    deadline = Deadline(5)
    await asyncio.sleep(4)
    assert deadline.left() == 1
    await asyncio.sleep(1)
    with pytest.raises(ApiError) as caught:
        deadline.left()
    assert (caught.value.status, caught.value.code) == (503, "deadline")
    assert Deadline(None).left() is None


@at_once
async def test_only_its_own_time_limit_is_a_deadline() -> None:
    async def fail() -> None:
        raise TimeoutError("of the work itself")

    with pytest.raises(TimeoutError, match="of the work itself"):
        await Deadline(5).limit(fail())
    with pytest.raises(ApiError, match="longer than its time limit"):
        await Deadline(5).limit(asyncio.sleep(6))


@at_once
async def test_a_drain_is_over_with_the_last_answer_or_with_its_time() -> None:
    for answer_takes in (3, 7):
        lifecycle = Lifecycle()
        with lifecycle.answering():
            assert not lifecycle.over
            lifecycle.drain(5)
            await asyncio.sleep(answer_takes)
            assert lifecycle.over == (answer_takes > 5)
        assert lifecycle.over


@at_once
async def test_who_is_refused_during_a_drain_is_told_how_long_it_lasts() -> None:
    lifecycle = Lifecycle()
    lifecycle.check()
    lifecycle.drain(5)
    for seconds, left in ((0.5, 5), (4.5, 0), (2, 0)):
        await asyncio.sleep(seconds)
        with pytest.raises(ApiError, match=f"must end within {left} s") as caught:
            lifecycle.check()
        assert (caught.value.status, caught.value.code) == (503, "draining")
