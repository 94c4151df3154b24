"""How many tokens of prompts a step computes beside running answers, from the time that steps take.

A step gives each running answer one token. A prompt beside them makes it longer, on a CPU by about the time
of its tokens, so the gap between two tokens of an answer is bounded by bounding the tokens of prompts.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from ..scheduler import Plan

LONGEST_STEP = 2.8  # of the time of a step without prompts; the gap that is promised is 3 times as long
# Rows of a step with prompts. Kernels multiply 4 or 8 rows together.
SIZES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
RECENT_STEPS = 5  # of one size; the fastest counts, because others may have used the machine
STEPS_BETWEEN = 16  # with prompts, until one goes without: its time is what the others are compared with
# After so many steps a size is tried again. Fewer than one step in a hundred may be too long, for the p99.
STEPS_TO_FORGET = 192


@dataclass(slots=True)
class _Times:
    """Of the latest steps of one size; latest: the number of the last one."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    latest: int = 0


class Pace:
    """Remembers the time of steps by their rows, and picks the largest that is short enough.

    The size after that is tried with a single step, if nothing is known about it.
    """

    def __init__(self) -> None:
        self._alone: dict[int, _Times] = defaultdict(_Times)  # steps without prompts, by the number of rows
        self._mixed: dict[int, _Times] = defaultdict(_Times)  # by the number of rows
        self._step = 0  # counts those with prompts
        self._since = 0  # steps with prompts since one without

    def prompt_tokens(self, decoding: int) -> int | None:
        """The tokens of prompts beside so many answers; None: no bound, or none is known yet."""
        sizes = [size for size in SIZES if size > decoding]
        if not decoding or not self._alone or not sizes:
            return None
        if self._since >= STEPS_BETWEEN:
            return 0
        longest = LONGEST_STEP * self._time_alone(decoding)
        known = {size: seconds for size in sizes if (seconds := self._time_of(size)) is not None}
        short = [size for size, seconds in known.items() if seconds <= longest]
        if not short:  # any prompt makes a step longer, and must go on all the same
            return sizes[0] - decoding
        best = short[-1]
        if best == sizes[-1]:
            return None
        after = next(size for size in sizes if size > best)
        return (best if after in known else after) - decoding

    def learn(self, plan: Plan, seconds: float) -> None:
        """How long a step took."""
        rows = sum(len(row.token_ids) for row in plan.rows)
        prompts = sum(len(row.token_ids) for row in plan.rows if row.is_prefill)
        if not prompts:  # a draft takes as long as the token of another answer
            self._alone[rows].seconds.append(seconds)
            self._since = 0
            return
        self._step += 1
        self._since += 1
        if rows in SIZES:
            times = self._mixed[rows]
            if self._is_old(times):
                times.seconds.clear()
            times.seconds.append(seconds)
            times.latest = self._step

    def _time_alone(self, decoding: int) -> float:
        """Of a step of so many rows; of fewer, or else of more, if these were never alone."""
        fewer = [rows for rows in self._alone if rows <= decoding]
        return min(self._alone[max(fewer) if fewer else min(self._alone)].seconds)

    def _time_of(self, size: int) -> float | None:
        """None if there was no step of this size for long."""
        times = self._mixed[size]
        return None if not times.seconds or self._is_old(times) else min(times.seconds)

    def _is_old(self, times: _Times) -> bool:
        return self._step - times.latest > STEPS_TO_FORGET
