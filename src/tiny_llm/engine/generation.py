"""An answer in the making: a stream of tokens becomes pieces of text, a reason to stop, and statistics."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Literal

from ..sampling.stop import StopStrings
from .text import TextStream


@dataclass(slots=True)
class Statistics:
    """Tokens, the one that ended the answer included, and seconds from when the first piece was asked for."""

    prompt_tokens: int
    generated_tokens: int = 0
    time_to_first_token: float = 0.0
    decode_seconds: float = 0.0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens by the time to the first token; 0 before there is one."""
        return self.prompt_tokens / self.time_to_first_token if self.time_to_first_token else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens behind the first by the time they took; 0 before there are two."""
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0


class Generation(Iterator[str]):
    """An iterator over the pieces of one answer; joined they are the whole of it.

    `statistics` is up to date at every piece. `finish_reason` is None until the end, then "stop" (an end
    token or a stop string) or "length". Who leaves before the end calls `close()`, which frees the caches.
    """

    def __init__(
        self,
        tokens: Iterator[int],
        text: TextStream,
        end_tokens: frozenset[int],
        stops: StopStrings,
        prompt_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.statistics = Statistics(prompt_tokens)
        self.finish_reason: Literal["stop", "length"] | None = None
        self._tokens = tokens
        self._text = text
        self._end_tokens = end_tokens
        self._stops = stops
        self._clock = clock
        self._pieces = self._run()

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """End the answer here."""
        self._pieces.close()

    def _run(self) -> Generator[str]:
        try:
            ended = False
            for token in self._timed(self._tokens):
                ended = token in self._end_tokens
                if ended:
                    break
                if piece := self._stops.add(self._text.add(token)):
                    yield piece
                if self._stops.found:
                    break
            rest = self._stops.add(self._text.finish()) + self._stops.finish()
            self.finish_reason = "stop" if ended or self._stops.found else "length"
            if rest:
                yield rest
        finally:
            if isinstance(self._tokens, Generator):
                self._tokens.close()

    def _timed(self, tokens: Iterator[int]) -> Iterator[int]:
        begin = self._clock()
        for token in tokens:
            now = self._clock()
            self.statistics.generated_tokens += 1
            if self.statistics.generated_tokens == 1:
                self.statistics.time_to_first_token = now - begin
            self.statistics.decode_seconds = now - begin - self.statistics.time_to_first_token
            yield token
