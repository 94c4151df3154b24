"""One request of a load and the times of its answer."""

from dataclasses import dataclass, field
from itertools import pairwise

STOPPED = "not finished when the run was stopped"


@dataclass(slots=True)
class Answer:
    """Times are in seconds on one clock. An answer has failed until it is complete.

    times: arrivals of the events that had text.
    end: arrival of the last event of a choice.
    output_tokens: as the server says; the number of events with text if it says nothing.
    events: those of a choice, also without text.
    """

    prompt_tokens: int
    begin: float
    times: list[float] = field(default_factory=list)
    end: float = 0.0
    output_tokens: int = 0
    has_usage: bool = False
    failure: str | None = STOPPED
    events: int = 0

    @property
    def ttft(self) -> float:
        """Time to the first token."""
        return self.times[0] - self.begin

    @property
    def latency(self) -> float:
        return self.end - self.begin

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first; None for a single token."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def gaps(self) -> list[float]:
        """Times between two events. An event may have several tokens."""
        return [after - before for before, after in pairwise(self.times)]
