"""A request as the scheduler sees it: its tokens, and the pages that hold their keys and values."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..checks.types import check_number, check_size, check_text
from ..errors import ArgumentError


class Status(StrEnum):
    """Where a request is."""

    NEW = "new"  # not added yet
    WAITING = "waiting"  # no pages: not started, or preempted
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(eq=False, slots=True)
class RequestState:
    """One answer to a prompt, vLLM's sequence: its text is an `Answer` of the engine. Compared by identity.

    `max_tokens` bounds the tokens of the answer, `deadline` is in the clock of `Scheduler.plan`, and requests
    share cached pages only with those of the same `salt`. With `choices` above 1, `Scheduler.fork` splits the
    request into so many answers after its prompt. `drafts` are proposed next tokens: the next step verifies
    them; `Row.set_draft` may replace them. The scheduler sets all other fields.
    """

    id: str
    prompt_ids: Sequence[int]
    max_tokens: int
    salt: str = ""
    choices: int = 1  # answers still in this request; 1 after the fork
    deadline: float | None = None
    wants_prompt_logprobs: bool = False  # the logits of its prompt are wanted, not only those after it
    drafts: Sequence[int] = ()

    choice: int = field(default=0, init=False)  # the number of this answer among those of its prompt
    status: Status = field(default=Status.NEW, init=False)
    reason: str | None = field(default=None, init=False)  # why it finished
    arrival: int = field(default=-1, init=False)
    token_ids: array[int] = field(init=False)  # prompt and answer
    pages: array[int] = field(default_factory=lambda: array("i"), init=False)  # in order
    computed: int = field(default=0, init=False)  # tokens whose keys and values are in the pages
    cached_tokens: int = field(default=0, init=False)  # of the prompt, found at its first start
    preemptions: int = field(default=0, init=False)
    furthest: int = field(default=0, init=False)  # tokens ever computed: below it, tokens are computed again
    prefill_end: int = field(default=0, init=False)  # number of tokens at its last start
    beginning: tuple[int, int] | None = field(default=None, init=False)  # a page that its last start copies
    page_hashes: list[bytes] = field(default_factory=list, init=False)  # of full pages, for the prefix index
    registered: int = field(default=0, init=False)  # pages that were offered to the prefix index

    def __post_init__(self) -> None:
        check_text("RequestState", "id", self.id)
        check_size("RequestState", "max_tokens", self.max_tokens)
        check_text("RequestState", "salt", self.salt)
        check_size("RequestState", "choices", self.choices)
        if self.deadline is not None:
            check_number("RequestState", "deadline", self.deadline)
        self.token_ids = token_array("prompt_ids", self.prompt_ids)
        if not self.token_ids:
            raise ArgumentError("RequestState", "prompt_ids", "no token", "at least one token")

    @property
    def order(self) -> tuple[int, int]:
        """Older requests first."""
        return self.arrival, self.choice

    @property
    def pending(self) -> int:
        """Known tokens that are not computed: 1 in decode, more in prefill."""
        return len(self.token_ids) - self.computed

    @property
    def needs_prompt_logprobs(self) -> bool:
        """Whether all its tokens must be computed: the log probabilities of its prompt are not known yet."""
        return self.wants_prompt_logprobs and self.num_output == 0

    @property
    def num_output(self) -> int:
        """The number of tokens of the answer."""
        return len(self.token_ids) - len(self.prompt_ids)

    @property
    def output_ids(self) -> list[int]:
        """The tokens of the answer."""
        return list(self.token_ids[len(self.prompt_ids) :])

    @property
    def longest(self) -> int:
        """The number of tokens that are ever computed: the last token of the longest answer is not."""
        return len(self.prompt_ids) + self.max_tokens - 1

    def fork(self, choice: int) -> RequestState:
        """Another answer to the same prompt, with the tokens and pages of this one."""
        other = RequestState(
            self.id, self.prompt_ids, self.max_tokens, self.salt, choices=1, deadline=self.deadline
        )
        other.choice = choice
        other.status, other.arrival = self.status, self.arrival
        other.token_ids, other.pages = self.token_ids[:], self.pages[:]
        other.page_hashes = self.page_hashes[:]
        other.computed, other.furthest, other.registered = self.computed, self.furthest, self.registered
        other.cached_tokens = self.cached_tokens
        return other


def token_array(argument: str, token_ids: Sequence[int]) -> array[int]:
    """The token ids as an array: 4 bytes each, and slices are copied without Python objects."""
    try:
        return array("i", token_ids)
    except (TypeError, OverflowError) as error:
        raise ArgumentError("RequestState", argument, str(error), "token ids") from None
