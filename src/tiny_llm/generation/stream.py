"""A generation on a device of its own, whatever MLX's default device is for those who read it."""

from collections.abc import Iterator

from ..runtime.device import on_device
from .generation import Generation
from .result import Result


class Stream(Iterator[str]):
    """The pieces of an answer as they are made; joined they are its text.

    `result` has the answer as far as it has come. Whoever wants no more drops the stream, or calls `close()`.
    It is read by the thread that began it; on the CPU another one may go on.
    """

    def __init__(self, generation: Generation, device: str):
        self._generation = generation
        self._device = device

    def __next__(self) -> str:
        with on_device(self._device):
            return next(self._generation)

    @property
    def result(self) -> Result:
        """Text, tokens and statistics so far; whole when the pieces have ended."""
        return self._generation.result

    def close(self) -> None:
        """End the answer here."""
        self._generation.close()
