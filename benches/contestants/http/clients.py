"""Many clients without a pause: good requests, some that leave early, and bad ones."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from benches.contestants.http.load import Prompts
from tiny_llm_tools.benchmark.serving.answer import Answer
from tiny_llm_tools.benchmark.serving.client import ROUTES, Client
from tiny_llm_tools.benchmark.serving.http import ProtocolError

KINDS = {"good": 60, "leaves in the stream": 15, "leaves before it": 10, "bad": 15}  # in percent
REST_SECONDS = 30.0  # within which the server has ended all requests
WARM_SHARE = 0.25  # of the seconds, after which memory is measured first
IN_FLIGHT = re.compile(r"^tiny_llm_num_requests_(?:running|waiting)\{.*\} (\S+)$", re.M)
PAGES = re.compile(r"^tiny_llm_kv_cache_usage_perc\{.*\} (\S+)$", re.M)
BAD = (b"{", b"[]", b'{"prompt": ""}', b'{"prompt": "a", "max_tokens": -1}', b'{"prompt": "a", "n": 9999}')


@dataclass(slots=True)
class Outcome:
    """answers: of the good requests. wrong: ends that should not be, with their reason."""

    answers: list[Answer] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    pages_at_rest: float | None = None  # share; None if requests were left
    memory: tuple[int, int] | None = None  # bytes of the process, after the warm-up and at the end


def run_clients(
    client: Client, prompts: Prompts, count: int, prompt: int, output: int, seconds: float, pid: int
) -> Outcome:
    """`count` clients for some seconds, until each has finished its last request."""
    outcome = Outcome()
    first: list[int | None] = []

    async def run() -> None:
        begin = time.perf_counter()

        async def one(number: int) -> None:
            numbers = random.Random(number)
            while time.perf_counter() < begin + seconds:
                (kind,) = numbers.choices(list(KINDS), KINDS.values())
                sizes = numbers.randint(1, prompt), numbers.randint(1, output)
                await _request(client, prompts, kind, sizes, numbers, outcome)
                outcome.ended[kind] += 1

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
            await asyncio.sleep(WARM_SHARE * seconds)
            first.append(resident_bytes(pid))
        outcome.seconds = time.perf_counter() - begin
        outcome.pages_at_rest = await _pages_at_rest(client)

    asyncio.run(run())
    last = resident_bytes(pid)
    if first[0] is not None and last is not None:
        outcome.memory = first[0], last
    return outcome


async def _request(
    client: Client,
    prompts: Prompts,
    kind: str,
    sizes: tuple[int, int],
    numbers: random.Random,
    outcome: Outcome,
) -> None:
    request = prompts.request(prompts.ids(sizes[0]), sizes[1])
    if kind == "good":
        answer = Answer(request.prompt_tokens, client.clock())
        await client.ask(request, answer)
        outcome.answers.append(answer)
        if answer.failure is not None:
            outcome.wrong.append(answer.failure)
        elif answer.output_tokens != request.output_tokens:
            outcome.wrong.append("an answer of a wrong length")
        return
    body = numbers.choice(BAD) if kind == "bad" else client.body(request)
    try:
        async with asyncio.timeout(client.timeout):
            if kind == "leaves before it":
                await _send_and_leave(client, body)
                return
            async with client.site.request("POST", ROUTES[client.endpoint], body) as response:
                expected = 400 if kind == "bad" else 200
                if response.status != expected:
                    outcome.wrong.append(f"{kind}: HTTP {response.status} instead of {expected}")
                elif kind == "bad":
                    json.loads(await response.body())["error"]["message"]
                else:
                    await anext(response.pieces())
    except (OSError, ProtocolError, ValueError, KeyError) as error:
        outcome.wrong.append(f"{kind}: {error}")


async def _send_and_leave(client: Client, body: bytes) -> None:
    """Close the connection before the head of the answer can have been read."""
    address = client.site.address
    _, writer = await asyncio.open_connection(client.site.numeric, address.port)
    head = f"POST {ROUTES[client.endpoint]} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _pages_at_rest(client: Client) -> float | None:
    """The share of pages in use once no request is left; None if some are left for too long."""
    end = time.perf_counter() + REST_SECONDS
    while time.perf_counter() < end:
        async with client.site.request("GET", "/metrics") as response:
            text = (await response.body()).decode()
        if not any(map(float, IN_FLIGHT.findall(text))):
            return max(map(float, PAGES.findall(text)))
        await asyncio.sleep(0.05)
    return None


def resident_bytes(pid: int) -> int | None:
    """Memory of a process; None where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    found = re.search(r"^VmRSS:\s+(\d+) kB", status.read_text(), re.M)
    return int(found[1]) * 1024 if found else None
