"""The result of an answer: text, tokens, the reason why it ended, statistics, log probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..errors import AnswerError

FinishReason = Literal["stop", "length"]


@dataclass(slots=True)
class Statistics:
    """Token counts (the end token included) and seconds.

    The clock starts at the first `next()`, in a list when the request starts; time spent by the caller
    between pieces is excluded.
    """

    prompt_tokens: int
    generated_tokens: int = 0
    time_to_first_token: float = 0.0
    decode_seconds: float = 0.0
    queued_seconds: float = 0.0  # wait for other prompts of a list, before the seconds above
    cached_tokens: int = 0  # tokens of the prompt whose keys and values were cached already

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prefilled tokens divided by the time to the first token; 0 before the first token."""
        prefilled = self.prompt_tokens - self.cached_tokens
        return prefilled / self.time_to_first_token if self.time_to_first_token else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens after the first, divided by their time; 0 before the second token."""
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def count(self, seconds: float) -> None:
        """Count a token that came `seconds` after the beginning."""
        self.generated_tokens += 1
        if self.generated_tokens == 1:
            self.time_to_first_token = seconds
        self.decode_seconds = seconds - self.time_to_first_token


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of an answer with its log probability, and the most probable tokens at its position.

    `top` has pairs of id and log probability, in descending order. Log probabilities are those of the model
    over the whole vocabulary, before penalty, filters and temperature.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """An answer, complete or so far.

    text: without the end token or stop string that ended it.
    token_ids: all tokens from the model, including the end token.
    finish_reason: "stop" (an end token or a stop string), "length" (limit of tokens), or None before the end.
    logprobs: one entry for each of `token_ids` if requested, else None.
    error: what ended this answer of a list, whose `finish_reason` is None; the others are complete.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    statistics: Statistics
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: AnswerError | None = field(default=None, compare=False)


def checked_results(results: Sequence[Result]) -> list[Result]:
    """The answers of a list; if some have an error, the first one is raised, with all of them."""
    for result in results:
        if result.error is not None:
            raise result.error.with_results(results)
    return list(results)
