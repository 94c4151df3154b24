"""An answer as a stream of text, with statistics and the reason why it ended."""

import time
from collections.abc import Callable, Generator, Iterator

from ..sampling.stop import StopStrings
from .result import FinishReason, Result, Statistics
from .result_builder import ResultBuilder
from .text import TextStream

Clock = Callable[[], float]


class Generation(Iterator[str]):
    """An iterator over the pieces of one answer; joined, they are its text.

    `statistics` is up to date at every piece. `finish_reason` is None until the end, then "stop" (an end
    token or a stop string) or "length". Dropping the generation, or `close()`, ends it early and frees the
    caches.
    """

    def __init__(
        self,
        tokens: Iterator[int],
        text: TextStream,
        end_tokens: frozenset[int],
        stops: StopStrings,
        prompt_tokens: int,
        clock: Clock = time.perf_counter,
        *,
        min_tokens: int = 0,
    ):
        self._answer = ResultBuilder(text, end_tokens, stops, prompt_tokens, min_tokens=min_tokens)
        # A function without `self`: in a reference cycle, pages would wait for the garbage collector.
        self._pieces = _pieces(self._answer, tokens, clock)

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def statistics(self) -> Statistics:
        """Tokens and seconds so far."""
        return self._answer.statistics

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the answer ended; None until then."""
        return self._answer.finish_reason

    @property
    def result(self) -> Result:
        """The answer so far."""
        return self._answer.result

    def close(self) -> None:
        """End the answer here."""
        self._pieces.close()


def _pieces(answer: ResultBuilder, tokens: Iterator[int], clock: Clock) -> Generator[str]:
    begin = clock()  # later moved by the time that the caller takes between two pieces
    try:
        for token in tokens:
            if piece := answer.append(token, clock() - begin):
                handed_out = clock()
                yield piece
                begin += clock() - handed_out
            if answer.stopped:
                break
        if rest := answer.finish():
            yield rest
    finally:
        if isinstance(tokens, Generator):
            tokens.close()
