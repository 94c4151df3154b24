"""What an engine answers: the tokens of a prompt, and how its answers are made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..checks.types import check_number, check_size, check_text, check_type
from ..errors import ArgumentError
from ..sampling.grammar import Grammar
from ..sampling.params import GREEDY, Sampling

MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One prompt with `n` answers, which share its computation.

    sampling: how tokens are chosen; without `max_tokens` an answer may fill the context.
    logprobs: number of most probable tokens to return for each position; None returns no log probabilities.
    prompt_logprobs: the same for each token of the prompt but the first; the prompt is then computed as a
        whole, without cached pages.
    grammar: what each answer must match.
    deadline: seconds after which the request ends, wherever it is.
    salt: prompts with different salts share no cached pages.
    id: for logs; need not be unique.
    """

    prompt_ids: Sequence[int]
    sampling: Sampling = GREEDY
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    deadline: float | None = None
    salt: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        name = "EngineRequest"
        check_type(name, "sampling", self.sampling, Sampling, "a Sampling")
        check_size(name, "n", self.n)
        check_text(name, "salt", self.salt)
        check_text(name, "id", self.id)
        for argument in ("logprobs", "prompt_logprobs"):
            count = getattr(self, argument)
            if count is not None:
                check_size(name, argument, count, minimum=0)
                if count > MOST_LOGPROBS:
                    raise ArgumentError(name, argument, count, f"at most {MOST_LOGPROBS}")
        if self.grammar is not None:
            check_type(name, "grammar", self.grammar, Grammar, "a Grammar")
        if self.deadline is not None:
            check_number(name, "deadline", self.deadline)
            if not 0 < self.deadline < math.inf:
                raise ArgumentError(name, "deadline", self.deadline, "a number of seconds above 0")
