"""An answer in pieces, computed on its own device for every default device of the reader."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..errors import AnswerError
from ..runtime.device import on_device
from .generation import Generation
from .result import Result, checked_results


class Stream(Iterator[str]):
    """The pieces of an answer as they are made; joined they are its text.

    `result` has the answer so far. Dropping the stream, or `close()`, ends it early. On a GPU, only the
    thread that began a stream may read it; on the CPU another one may continue.
    """

    def __init__(self, generation: Generation, device: str):
        self._generation = generation
        self._device = device

    def __next__(self) -> str:
        with on_device(self._device):
            return next(self._generation)

    @property
    def result(self) -> Result:
        """Text, tokens and statistics so far."""
        return self._generation.result

    def close(self) -> None:
        """End the answer here."""
        self._generation.close()


def complete(stream: Stream) -> Result:
    """The complete answer."""
    for _ in stream:
        pass
    return stream.result


def complete_each(streams: Iterable[Stream]) -> list[Result]:
    """The complete answers, one after the other. An error of one is raised at the end."""
    results = []
    for stream in streams:
        error = None
        try:
            complete(stream)
        except AnswerError as raised:
            error = raised
        results.append(replace(stream.result, error=error))
    return checked_results(results)
