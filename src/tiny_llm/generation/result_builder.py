"""One answer as it grows: tokens in, text out, and the reason why it ended."""

from dataclasses import replace

from ..sampling.stop import StopStrings
from .result import FinishReason, Result, Statistics
from .text import TextStream


class ResultBuilder:
    """The tokens of one answer, and their text without end token and stop string.

    `token_ids` includes the end token, one of `end_tokens`, and `at_end_token` is True after it.
    `finish_reason` is None until the end.
    """

    def __init__(
        self,
        text: TextStream,
        end_tokens: frozenset[int],
        stops: StopStrings,
        prompt_tokens: int,
        *,
        min_tokens: int = 0,
    ):
        self.token_ids: list[int] = []
        self.text = ""
        self.finish_reason: FinishReason | None = None
        self.statistics = Statistics(prompt_tokens)
        self._stream = text
        self._end_tokens = end_tokens
        self._stops = stops
        self._min_tokens = min_tokens
        self.at_end_token = False

    @property
    def stopped(self) -> bool:
        """Whether an end token or a stop string has ended the answer."""
        return self.at_end_token or self._stops.found

    def append(self, token: int, seconds: float) -> str:
        """Add the next token, `seconds` after the beginning; return the text that became certain."""
        self.token_ids.append(token)
        self.statistics.count(seconds)
        self.at_end_token = token in self._end_tokens
        if self.at_end_token:
            return ""
        piece = self._stream.add(token)
        # The text of the first `min_tokens` tokens contains no stop string that counts.
        return self._show(piece if len(self.token_ids) <= self._min_tokens else self._stops.add(piece))

    def finish(self) -> str:
        """End the answer here; return the text that was held back."""
        rest = self._stops.add(self._stream.finish()) + self._stops.finish()
        self.finish_reason = "stop" if self.stopped else "length"
        return self._show(rest)

    @property
    def result(self) -> Result:
        """The answer so far."""
        return Result(self.text, tuple(self.token_ids), self.finish_reason, replace(self.statistics))

    def _show(self, piece: str) -> str:
        self.text += piece
        return piece
