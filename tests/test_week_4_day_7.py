"""Week 4, day 7: HTTP in front of the engine. A stream of events, clients that leave, and a drain.

There is no network: `send` and `receive` of ASGI are made by hand, and seconds pass at once.
"""

import asyncio
from contextlib import ExitStack, suppress

import pytest

from tiny_llm.server.disconnect import Client, ClientGone, watch
from tiny_llm.server.errors import ApiError
from tiny_llm.server.lifecycle import Lifecycle
from tiny_llm.server.sse import EventStream

from .support.asgi import Sent, receives
from .support.virtual_time import at_once, now

# Task 1: a stream of events


async def answer(*parts):
    """Bytes are events, numbers are seconds in which the engine says nothing."""
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            await asyncio.sleep(part)


@at_once
async def stream(*parts, comment_after=15.0, later=0.0):
    """What is sent of this answer, and in `later` seconds after its end."""
    sent = Sent()
    await EventStream(answer(*parts), Client(), comment_after)(sent)
    await asyncio.sleep(later)
    return sent


def is_comment(body):
    return body.startswith(b":") and body.endswith(b"\n\n")


def test_task_1_a_head_then_each_event_then_the_end():
    """More follows after each event, and nothing after the empty body at the end."""
    start, *parts = stream(b"data: a\n\n", b"data: [DONE]\n\n").messages
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert {part["type"] for part in parts} == {"http.response.body"}
    bodies = [(part["body"], part.get("more_body", False)) for part in parts]
    assert bodies == [(b"data: a\n\n", True), (b"data: [DONE]\n\n", True), (b"", False)]


def test_task_1_an_event_is_sent_when_it_comes():
    """Not when the answer is complete; and the head before the first token, however long the prompt is."""
    sent = stream(3.0, b"a", 2.0, b"b", 1.0)
    assert sent.bodies == [(3.0, b"a"), (5.0, b"b")]
    assert (sent.times[0], sent.times[-1]) == (0.0, 6.0)


def test_task_1_a_comment_is_sent_after_each_15_silent_seconds():
    """Or however many `comment_after` says."""
    bodies = stream(40.0, b"a").bodies
    assert [at for at, _ in bodies] == [15.0, 30.0, 40.0]
    assert [is_comment(body) for _, body in bodies] == [True, True, False]
    assert [at for at, _ in stream(3.5, b"a", comment_after=1.0).bodies] == [1.0, 2.0, 3.0, 3.5]


def test_task_1_an_event_ends_the_silence():
    """The seconds are counted from it: a comment at 35, not at 15 or 30."""
    sent = stream(10.0, b"a", 10.0, b"b", 20.0, b"c")
    assert [at for at, _ in sent.bodies] == [10.0, 20.0, 35.0, 40.0]
    assert [body for _, body in sent.bodies if not is_comment(body)] == [b"a", b"b", b"c"]


def test_task_1_no_comment_follows_the_end():
    """The connection has its next request then, and a comment would be part of that answer."""
    assert stream(b"a", later=100.0).messages[-1]["body"] == b""


@at_once
async def test_task_1_an_event_waits_until_the_one_before_is_sent():
    """A slow client is waited for: backpressure."""
    sent, asked = Sent(seconds=4.0), []

    async def events():
        for event in (b"a", b"b", b"c"):
            asked.append(now())
            yield event

    await EventStream(events(), Client(), 15.0)(sent)
    assert asked == [0.0, 4.0, 8.0]
    assert [body for _, body in sent.bodies] == [b"a", b"b", b"c"]


@at_once
async def test_task_1_a_client_that_has_gone_gets_no_event_but_the_answer_is_read_to_its_end():
    """The engine ends the request within a step, and says so by ending its events."""
    client, sent, made = Client(), Sent(), []

    async def events():
        for event in (b"a", b"b", b"c"):
            if event == b"b":
                client.leave()
            made.append(event)
            yield event

    await EventStream(events(), client, 15.0)(sent)
    assert [body for _, body in sent.bodies] == [b"a"]
    assert made == [b"a", b"b", b"c"]


@at_once
async def test_task_1_after_an_error_nothing_runs_on():
    """The answer is closed at once, so that the engine hears of it, and the comments stop."""
    sent, closed = Sent(broken_after=2), []

    async def events():
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(now())

    with pytest.raises(OSError, match="broken") as caught:
        await EventStream(events(), Client(), 15.0)(sent)
    assert closed == [0.0], f"the events are still open after {caught.value!r}"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is still running"


# Task 2: a client that leaves


async def work(seconds, result, ended):
    """Something that takes so long. `ended` gets the second in which it ends, also if it is cancelled."""
    try:
        await asyncio.sleep(seconds)
        return result
    finally:
        ended.append(now())


@at_once
async def test_task_2_work_has_its_result_or_its_error():
    """If the client stays."""

    async def fail():
        raise ZeroDivisionError

    assert await Client().wait_for(work(2.0, "ids", [])) == "ids"
    with pytest.raises(ZeroDivisionError):
        await Client().wait_for(fail())


@at_once
async def test_task_2_the_work_for_a_client_that_leaves_is_cancelled():
    """At once: nobody reads its result. And no more work begins."""
    client, ended = Client(), []
    asyncio.get_running_loop().call_later(3.0, client.leave)
    with pytest.raises(ClientGone):
        await client.wait_for(work(100.0, "ids", ended))
    assert ended == [3.0], f"work for 100 s whose client left after 3 s ended at {ended}"
    with pytest.raises(ClientGone):
        await client.wait_for(work(100.0, "ids", ended))
    assert (now(), ended) == (3.0, [3.0]), "the client had gone before this work began"


@at_once
async def test_task_2_watch_sees_only_a_disconnect():
    """Other messages may come before it, such as an empty part of the body."""
    client = Client()
    with watch(receives(1.0, "http.request", 2.0, "http.disconnect"), client):
        await asyncio.sleep(2.0)
        assert not client.gone, "http.request does not say that the client has gone"
        await asyncio.sleep(2.0)
        assert client.gone, "http.disconnect came a second ago"


@at_once
async def test_task_2_watch_ends_with_its_block():
    """Also by an error. Whatever is received later is of the next block."""
    client = Client()
    with suppress(ZeroDivisionError), watch(receives(5.0, "http.disconnect"), client):
        await asyncio.sleep(1.0)
        raise ZeroDivisionError
    await asyncio.sleep(10.0)
    assert not client.gone, "`receive` is still read after the block"


@at_once
async def test_task_2_a_drop_has_its_own_error():
    """`drop(error)` is how the end of a drain cuts a request that waits."""
    client = Client()
    asyncio.get_running_loop().call_later(3.0, client.drop, ApiError(503, "cut", code="draining"))
    with pytest.raises(ApiError, match="cut"):
        await client.wait_for(work(100.0, "ids", []))


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@at_once
async def test_task_2_a_caller_that_is_cancelled_stays_cancelled(leaves):
    """A time limit or a stop of the server is no ClientGone, even if the client leaves in the same moment."""
    client, ended = Client(), []
    caller = asyncio.create_task(client.wait_for(work(100.0, "ids", ended)))
    await asyncio.sleep(3.0)
    caller.cancel()
    if leaves:
        client.leave()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [3.0], "the work goes on although nobody waits for it"


# Task 3: a drain


def test_task_3_requests_are_counted_while_they_are_answered():
    """An error ends the answer, too."""
    lifecycle = Lifecycle()
    with lifecycle.answering(), suppress(ZeroDivisionError), lifecycle.answering():
        assert lifecycle.in_flight == 2
        raise ZeroDivisionError
    assert lifecycle.in_flight == 0


def test_task_3_a_drain_refuses_new_requests_and_lets_the_others_end():
    """503 says that another server should be asked. A refused request was never in flight."""
    lifecycle = Lifecycle()
    lifecycle.check()
    with lifecycle.answering():
        lifecycle.drain(20.0)
        with pytest.raises(ApiError) as refused, lifecycle.answering():
            pytest.fail("a request came in during a drain")
        assert (refused.value.status, refused.value.code) == (503, "draining")
        assert "retry-after" in dict(refused.value.headers)
        with pytest.raises(ApiError):  # this is how `/ready` asks
            lifecycle.check()
        assert lifecycle.in_flight == 1


def test_task_3_a_drain_is_over_after_the_last_answer():
    """Without a drain, a server that has nothing to do goes on."""
    lifecycle = Lifecycle()
    assert not lifecycle.over, "no drain has begun"
    with lifecycle.answering():
        lifecycle.drain(20.0)
        assert not lifecycle.over, "an answer is not complete"
    assert lifecycle.over


@at_once
async def test_task_3_a_drain_is_over_when_its_time_is():
    """Whatever is still answered then."""
    lifecycle = Lifecycle()
    with lifecycle.answering():
        await asyncio.sleep(100.0)
        lifecycle.drain(20.0)
        await asyncio.sleep(19.0)
        assert not lifecycle.over, "19 of 20 seconds"
        await asyncio.sleep(2.0)
        assert lifecycle.over, "21 of 20 seconds"


def test_task_3_a_cut_tells_each_request_in_flight():
    """Those whose block has ended are answered already."""
    lifecycle, told = Lifecycle(), []
    with lifecycle.cutting(told.append):
        with suppress(ZeroDivisionError), lifecycle.cutting(told.append):
            raise ZeroDivisionError
        with lifecycle.cutting(told.append):
            lifecycle.cut()
    assert [(error.status, error.code) for error in told] == [(503, "draining")] * 2


def test_task_3_a_request_that_comes_to_its_next_block_after_the_cut_is_told_there():
    """It was between the blocks of waiting and of answering, and would never end."""
    lifecycle, told = Lifecycle(), []
    lifecycle.cut()
    with lifecycle.cutting(told.append):
        assert len(told) == 1
    assert told[0].status == 503


def test_task_3_a_cut_misses_no_request_though_blocks_end_meanwhile():
    """The callback of a request may end its block at once."""
    lifecycle, told = Lifecycle(), []
    with ExitStack() as whole:
        for name in "abc":
            block = whole.enter_context(ExitStack())

            def end(error, name=name, block=block):
                told.append(name)
                block.close()

            block.enter_context(lifecycle.cutting(end))
        lifecycle.cut()
    assert told == ["a", "b", "c"]
