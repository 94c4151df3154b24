"""Asks a server and notes when each event of the answer arrives."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..clock import Clock
from .answer import Answer
from .events import DONE, EventReader, error_message, read_event
from .http import CUT_OFF, ProtocolError, Response, Site, reason_of

Endpoint = Literal["completions", "chat"]
ROUTES: dict[Endpoint, str] = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """A prompt, as text or as token ids, and the length of the answer."""

    prompt: str | Sequence[int]
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Client:
    """Streams greedy answers of one model. `ignore_eos`: answers do not end before their length."""

    site: Site
    model: str
    endpoint: Endpoint = "completions"
    ignore_eos: bool = True
    timeout: float = 600.0  # seconds for a whole answer
    clock: Clock = time.perf_counter

    def body(self, request: ServeRequest) -> bytes:
        prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
        chat = {"messages": [{"role": "user", "content": prompt}]}
        record: dict[str, Any] = {
            "model": self.model,
            **(chat if self.endpoint == "chat" else {"prompt": prompt}),
            "max_tokens": request.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
        }
        return json.dumps(record).encode()

    async def ask(self, request: ServeRequest, answer: Answer) -> None:
        """Send the request now; `answer` gets the times, and the reason if it fails."""
        body = self.body(request)
        answer.begin = self.clock()
        try:
            async with (
                asyncio.timeout(self.timeout),
                self.site.request("POST", ROUTES[self.endpoint], body) as response,
            ):
                await self._read(response, answer)
            answer.failure = None
        except TimeoutError:
            answer.failure = f"no complete answer within {self.timeout:g} s"
        except ProtocolError as error:
            answer.failure = str(error)
        except OSError as error:
            answer.failure = f"connection: {reason_of(error)}"
        except (ValueError, RecursionError, OverflowError) as error:  # numbers and nesting beyond all bounds
            answer.failure = f"a broken answer: {error}"

    async def _read(self, response: Response, answer: Answer) -> None:
        if response.status != 200:
            raise ProtocolError(f"HTTP {response.status}: {await message_of(response)}")
        kind = response.headers.get("content-type", "no content type")
        if not kind.startswith("text/event-stream"):
            raise ProtocolError(f"expected a stream of events, got {kind}")
        events, finished, done = EventReader(), False, False
        async for piece in response.pieces():
            now = self.clock()
            for data in events.feed(piece):
                if data == DONE:
                    done = True
                    continue
                said = read_event(data)
                finished |= said.finished
                if said.has_choice:
                    answer.end = now
                    answer.events += 1
                # An answer without any text has its end as its only event.
                if said.has_text or (said.finished and not answer.times):
                    answer.times.append(now)
                if said.usage is not None:
                    answer.prompt_tokens, answer.output_tokens = said.usage
                    answer.has_usage = True
        if not (done or finished) or not answer.times:
            raise ProtocolError(CUT_OFF)
        if not answer.has_usage:
            answer.output_tokens = len(answer.times)


async def message_of(response: Response) -> str:
    """What the body of an error says."""
    body = await response.body()
    try:
        return error_message(json.loads(body))
    except ValueError:
        return error_message(body.decode(errors="replace").strip() or "no text")
