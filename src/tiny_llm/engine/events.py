"""What an engine says about a request, step by step."""

from dataclasses import dataclass
from typing import Literal

from ..generation.result import TokenLogprobs

EventReason = Literal["stop", "length", "cancelled", "deadline", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """New tokens of one answer, and its end.

    choice: the number of the answer among those of its request.
    text: what became certain; the texts of an answer, joined, are its text.
    logprobs: one entry for each of `token_ids` if requested, else None.
    finish_reason: why the answer ended; None before its last event.
    stop_string: the one that ended the answer, with finish_reason "stop"; None if an end token did.
    prompt_logprobs: in the first event of an answer, if requested: one entry for each token of the prompt but
        the first; else None.
    error: with finish_reason "error".
    """

    choice: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: EventReason | None = None
    error: Exception | None = None
    stop_string: str | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
