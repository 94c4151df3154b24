"""An engine without a model: answers follow from the prompt; delays and failures are set by a test."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from tiny_llm.engine import EngineRequest, Event
from tiny_llm.errors import QueueFull
from tiny_llm.generation.result import TokenLogprobs
from tiny_llm.generation.text import TextStream
from tiny_llm.loading.config import read_config
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.loading.tokenizer.read_tokenizer import read_tokenizer
from tiny_llm.sampling.grammar import start_grammar

CONTEXT = 2048


@cache
def embedded_tokenizer() -> Any:
    return read_tokenizer(EMBEDDED, read_config(EMBEDDED))


@dataclass
class FakeEngine(AbstractContextManager):
    """`delay` seconds pass before each token. `fail_after` tokens, `failure` ends a request.

    script: the text of all answers, or of each choice, instead of tokens that follow from the prompt.
    """

    delay: float = 0.0
    failure: Exception | None = None
    fail_after: int = 2
    refusal: Exception | None = None  # raised by submit
    script: str | tuple[str, ...] | None = None
    cached: int = 0  # tokens of each prompt that the engine knows
    max_running: int = 1000
    tokenizer: Any = field(default_factory=embedded_tokenizer)
    context: int = CONTEXT
    requests: list[EngineRequest] = field(default_factory=list)
    handles: list[FakeHandle] = field(default_factory=list)
    healthy: bool = True
    failed: bool = False
    observers: list[Callable[[Any], None]] = field(default_factory=list)

    def __exit__(self, *_: object) -> None:
        """Nothing needs to be closed."""

    @property
    def llm(self) -> Any:
        return SimpleNamespace(name="fake", tokenizer=self.tokenizer, family="fake", weight_bytes=1000)

    @property
    def running(self) -> list[FakeHandle]:
        return [handle for handle in self.handles if not handle.ended]

    def submit(self, request: EngineRequest) -> FakeHandle:
        if self.refusal is not None:
            raise self.refusal
        if len(self.running) >= self.max_running:
            raise QueueFull(self.max_running)
        if request.grammar is not None:
            start_grammar(self.tokenizer, request.grammar)  # as an engine does: a wrong one is refused
        self.requests.append(request)
        handle = FakeHandle(self, request)
        self.handles.append(handle)
        return handle

    def statistics(self) -> Any:
        done = [handle.generated for handle in self.handles]
        return SimpleNamespace(
            running=len(self.running), waiting=0, pages_total=100, pages_used=10 * len(self.running),
            prefix_queries=0, prefix_hits=0, preemptions=0, drafted_tokens=0, accepted_tokens=0,
            prompt_tokens=sum(len(request.prompt_ids) for request in self.requests),
            generation_tokens=sum(done), steps=len(done), step_tokens=tuple(done),
        )  # fmt: skip

    def observe(self, callback: Callable[[Any], None]) -> None:
        self.observers.append(callback)

    def alive(self, max_age: float) -> bool:
        return self.healthy


class FakeHandle:
    def __init__(self, engine: FakeEngine, request: EngineRequest):
        self._engine = engine
        self._request = request
        self.prompt_tokens = len(request.prompt_ids)
        self.cached_tokens = 0
        self.generated = 0
        self.cancelled = False
        self.ended = False

    def cancel(self) -> None:
        self.cancelled = True

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The choices in turns, a token each."""
        choices = [self._answer(choice) for choice in range(self._request.n)]
        clock = asyncio.get_running_loop().time
        end = clock() + (self._request.deadline or math.inf)
        self.cached_tokens = min(self._engine.cached, self.prompt_tokens - 1)
        try:
            for turn in range(max(map(len, choices))):
                await asyncio.sleep(self._engine.delay)
                if self._engine.failure is not None and turn == self._engine.fail_after:
                    yield Event(0, "", (), None, "error", self._engine.failure)
                    return
                for choice, events in enumerate(choices):
                    if self.cancelled or clock() > end:
                        yield Event(choice, "", (), None, "cancelled" if self.cancelled else "deadline")
                    elif turn < len(events):
                        self.generated += 1
                        yield events[turn]
                if self.cancelled or clock() > end:
                    return
        finally:
            self.ended = True
            for callback in self._engine.observers:
                callback(SimpleNamespace(queue_seconds=0.01))

    def _answer(self, choice: int) -> list[Event]:
        """The events of a choice: one for each token, until a stop string or the limit."""
        sampling, tokenizer = self._request.sampling, self._engine.tokenizer
        limit = sampling.max_tokens or CONTEXT
        ids = self._ids(choice, limit)
        stream = TextStream(tokenizer.detokenizer)
        pieces = [stream.add(token) for token in ids]
        pieces[-1] += stream.finish()
        whole = "".join(pieces)
        ends = [place for place in map(whole.find, sampling.stop) if place >= 0]
        end = min(ends, default=len(whole))
        events, length = [], 0
        for number, (token, piece) in enumerate(zip(ids, pieces, strict=True)):
            text = piece[: max(end - length, 0)]
            length += len(piece)
            stopped = bool(ends) and length >= end
            last = number == len(ids) - 1
            said_all = last and self._engine.script is not None and len(ids) < limit
            reason = "stop" if stopped or said_all else "length" if last else None
            string = next((each for each in sampling.stop if whole.find(each) == end), None)
            logprobs = self._logprobs(token)
            events.append(
                Event(choice, text, (token,), logprobs, reason, stop_string=string if stopped else None)
            )
            if stopped:
                break
        if self._request.prompt_logprobs is not None:
            scores = tuple(TokenLogprobs(token, -0.25) for token in self._request.prompt_ids[1:])
            events[0] = replace(events[0], prompt_logprobs=scores)
        return events

    def _ids(self, choice: int, limit: int) -> list[int]:
        script = self._engine.script
        if script is not None:
            said = script if isinstance(script, str) else script[choice]
            return self._engine.tokenizer.encode(said, add_special_tokens=False)[:limit]
        seed = self._request.sampling.seed if self._request.sampling.temp else None
        key = f"{self._request.prompt_ids} {choice} {seed}"
        digests = (hashlib.sha256(f"{key} {number}".encode()).digest() for number in range(limit))
        return [300 + int.from_bytes(digest[:2]) % 3000 for digest in digests]

    def _logprobs(self, token: int) -> tuple[TokenLogprobs, ...] | None:
        count = self._request.logprobs
        if count is None:
            return None
        return (TokenLogprobs(token, -0.5, tuple((token + i, -0.5 - i) for i in range(count))),)
