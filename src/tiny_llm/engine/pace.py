"""How many tokens of prompts a step computes beside running answers, from the time that steps take.

A step gives each running answer one token. A prompt beside them makes it longer, on a CPU by about the time
of its tokens, so the gap between two tokens of an answer is bounded by bounding the tokens of prompts.
"""

from collections import defaultdict, deque

from ..scheduler import Plan

LONGEST_STEP = 2.7  # of the time of a step without prompts; the gap that is promised is 3 times as long
# Rows of a step with prompts. Kernels multiply 4 or 8 rows together.
SIZES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
FEW_STEPS = 3  # are not enough to know a size: others may have used the machine
RECENT_STEPS = 32
STEPS_TO_FORGET = 256  # after so many bounded steps, the size that was too long is tried again


class Pace:
    """Remembers the time of steps by their rows, and picks the largest that is short enough.

    Each size is tried a few times once the size before it is known to be short enough.
    """

    def __init__(self) -> None:
        self._alone: dict[int, deque[float]] = _times()  # of steps without prompts, by the number of rows
        self._mixed: dict[int, deque[float]] = _times()  # by the number of rows
        self._bounded = 0  # steps

    def prompt_tokens(self, decoding: int) -> int | None:
        """The tokens of prompts beside so many answers; None: no bound, or none is known yet."""
        if not decoding or not self._alone:
            return None
        longest = LONGEST_STEP * self._time_alone(decoding)
        best = None
        for size in SIZES:
            if size <= decoding:
                continue
            times = self._mixed[size]
            if len(times) >= FEW_STEPS and min(times) > longest:
                self._bounded += 1
                if self._bounded % STEPS_TO_FORGET == 0:
                    times.clear()
                break
            best = size
            if len(times) < FEW_STEPS:
                break
        else:
            return None
        if best is None:  # any prompt makes it longer, and must go on all the same
            best = next(size for size in SIZES if size > decoding)
        return best - decoding

    def _time_alone(self, decoding: int) -> float:
        """Of a step of so many rows; of fewer, or else of more, if these were never alone."""
        fewer = [rows for rows in self._alone if rows <= decoding]
        return min(self._alone[max(fewer) if fewer else min(self._alone)])

    def learn(self, plan: Plan, seconds: float) -> None:
        """How long a step took."""
        rows = sum(len(row.token_ids) for row in plan.rows)
        prompts = sum(len(row.token_ids) for row in plan.rows if row.is_prefill)
        if not prompts:  # a draft takes as long as the token of another answer
            self._alone[rows].append(seconds)
        elif prompts and rows in SIZES:
            self._mixed[rows].append(seconds)


def _times() -> dict[int, deque[float]]:
    return defaultdict(lambda: deque(maxlen=RECENT_STEPS))
