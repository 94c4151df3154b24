"""Clients that leave or do not read: their requests are cancelled, streamed or not."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
from collections.abc import AsyncGenerator

import pytest

from tiny_llm.server.disconnect import Client, ClientGone
from tiny_llm.server.sse import COMMENT, EventStream

from ..support.asgi import Sent
from ..support.serving.fake_engine import FakeEngine
from ..support.serving.running import SECONDS, RunningServer, running, wait_until
from ..support.virtual_time import at_once, now

LONG = 2000  # tokens, far more than come while a test runs


def send(server: RunningServer, path: str = "/v1/completions", **fields: object) -> socket.socket:
    """A request, whose connection stays open."""
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    connection = server.connect()
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def start(server: RunningServer, stream: bool, **fields: object) -> socket.socket:
    """A request whose answer has begun in the engine."""
    before = len(server.engine.handles)
    connection = send(server, max_tokens=LONG, stream=stream, **fields)
    wait_until(lambda: len(server.engine.handles) > before and server.engine.handles[-1].generated > 2)
    return connection


def reset(connection: socket.socket) -> None:
    """Close without a farewell, as a client that crashed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [socket.socket.close, reset])
def test_a_client_that_leaves_cancels_its_request(stream: bool, leave) -> None:
    with running(FakeEngine(delay=0.005)) as server:
        with start(server, stream, prompt=["a", "b"], n=2) as connection:
            handles = server.engine.handles
            leave(connection)
        wait_until(lambda: server.engine.running == [])
        assert all(handle.cancelled for handle in handles)
        assert sum(handle.generated for handle in handles) < LONG
        wait_until(lambda: server.server.lifecycle.in_flight == 0)
        sample = b'request_success_total{finished_reason="cancelled",model_name="fake"} 1.0'
        assert sample in server.get("/metrics").body
        assert server.chat().status == 200


def test_a_client_that_does_not_read_is_disconnected() -> None:
    """The kernel keeps some megabytes for it; then writing stops."""
    tokens = 1500
    with running(FakeEngine(), write_timeout=0.2) as server:
        with send(server, prompt="a", max_tokens=tokens, stream=True, logprobs=20, n=8):
            wait_until(lambda: server.engine.handles and server.engine.running == [])
        (handle,) = server.engine.handles
        assert handle.cancelled
        assert handle.generated < 8 * tokens
        assert server.chat().status == 200


def test_a_time_limit_ends_with_what_it_is_for() -> None:
    """A request that came in time may be answered for longer, and so may one whose client reads again."""
    limits = {"head_timeout": 0.1, "body_timeout": 0.1, "write_timeout": 0.1}
    with running(FakeEngine(delay=0.05), **limits) as server:
        connection = http.client.HTTPConnection(*server.address, timeout=SECONDS)
        for _ in range(2):
            body, kind = json.dumps({"prompt": "a", "max_tokens": 8}), {"content-type": "application/json"}
            connection.request("POST", "/v1/completions", body, kind)
            response = connection.getresponse()
            assert (response.status, len(json.loads(response.read())["choices"])) == (200, 1)
            (protocol,) = server.server.server_state.connections
            for change in (protocol.pause_writing, protocol.resume_writing):
                protocol.loop.call_soon_threadsafe(change)
        connection.close()


def test_a_stream_without_tokens_has_comments() -> None:
    with running(FakeEngine(delay=0.15), keep_alive_comment=0.05) as server:
        answer = server.chat(stream=True, max_tokens=2)
        assert answer.body.count(b": keep-alive\n\n") >= 2
        assert len(answer.events) == 3
        assert b": keep-alive" not in server.chat(max_tokens=1).body


def test_a_client_that_leaves_before_its_body_is_complete_is_forgotten(server: RunningServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"Content-Type: application/json\r\n\r\n{")
        wait_until(lambda: server.server.lifecycle.in_flight == 1)
    wait_until(lambda: server.server.lifecycle.in_flight == 0)
    assert server.chat().status == 200


@at_once
async def test_work_for_a_client_that_has_gone_ends_at_once() -> None:
    """It may go between two of them."""
    client = Client()
    assert await client.wait_for(asyncio.sleep(1, "done")) == "done"
    client.leave()
    with pytest.raises(ClientGone):
        await client.wait_for(asyncio.sleep(LONG))
    assert now() == 1


@at_once
async def test_a_stream_goes_to_its_end_without_its_client() -> None:
    """What it counts at its end is the reason of the engine, which comes later."""
    client, ended = Client(), []

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"event"
        client.leave()
        yield b"one more"
        ended.append("cancelled")

    send = Sent()
    await EventStream(chunks(), client, comment_after=15)(send)
    assert ended == ["cancelled"]
    assert [message["body"] for message in send.messages if message.get("body")] == [b"event"]


@at_once
async def test_a_stream_has_comments_after_a_silence_only() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        for _ in range(10):
            await asyncio.sleep(10)
            yield b"event"
        await asyncio.sleep(40)
        yield b"last"

    send = Sent()
    await EventStream(chunks(), Client(), comment_after=15)(send)
    await asyncio.sleep(100)  # nothing follows its end
    bodies = [message["body"] for message in send.messages if message.get("body")]
    assert bodies == [b"event"] * 10 + [COMMENT] * 2 + [b"last"]
