"""What is told about an answer: its text and tokens, why it ended, how long it took, log probabilities."""

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclass(slots=True)
class Statistics:
    """Tokens, the one that ended the answer included, and seconds from when the first piece was asked for.

    The time in which somebody looks at a piece before asking for the next is not counted.
    """

    prompt_tokens: int
    generated_tokens: int = 0
    time_to_first_token: float = 0.0
    decode_seconds: float = 0.0
    queued_seconds: float = 0.0  # before, behind others of a list; no part of the seconds above
    cached_tokens: int = 0  # of the prompt, which were in a cache and not read again

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens that were read by the time to the first token; 0 before there is one."""
        read = self.prompt_tokens - self.cached_tokens
        return read / self.time_to_first_token if self.time_to_first_token else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens behind the first by the time they took; 0 before there are two."""
        return (self.generated_tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def count(self, seconds: float) -> None:
        """Count a token that came so long after the beginning."""
        self.generated_tokens += 1
        if self.generated_tokens == 1:
            self.time_to_first_token = seconds
        self.decode_seconds = seconds - self.time_to_first_token


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token of an answer and its log probability, with the most probable tokens at that place.

    `top` has pairs of id and log probability, falling. They are those of the model itself, over the whole
    vocabulary: before penalty, filters and temperature.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """An answer, whole or as far as it has come.

    text: without the end token or stop string that ended it.
    token_ids: what the model gave, an end token included.
    finish_reason: "stop" (an end token or a stop string), "length" (the limit of tokens); None before.
    logprobs: one entry for each of `token_ids` where they were asked for, else None.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    statistics: Statistics
    logprobs: tuple[TokenLogprobs, ...] | None = None
