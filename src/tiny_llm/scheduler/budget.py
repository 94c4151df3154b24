"""How many tokens of prompts a step computes beside running answers, from the time that steps take.

A step gives each running answer one token. A prompt beside them makes it longer, on a CPU by about the time
of its tokens, so the gap between two tokens of an answer is bounded by bounding the tokens of prompts. That
must not keep a prompt for long: after `PATIENCE` seconds with prompts beside answers, steps are longer.
"""

from collections import defaultdict, deque

from ..scheduler import Plan

LONGEST_STEP = 2.8  # of the time of a step without prompts; the gap that is promised is 3 times as long
FEWEST_TOKENS = 3  # of prompts beside answers, however long they take: a prompt must come in
# Seconds in which prompts are bounded like that. Later a step has at least so many of their tokens, beside
# which the answers take a small part of its time.
PATIENCE = 4.0
FEWEST_TOKENS_LATER = 120
# Rows of a step with prompts. Kernels multiply 4 or 8 rows together.
SIZES = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
RECENT_STEPS = 4  # the fastest counts, because others may have used the machine
TRIALS = 3  # of a size that is too long: a step may have been disturbed
# Steps with prompts after which such a size is tried again: fewer than one gap in a hundred is too long.
STEPS_TO_FORGET = 640
# Steps with prompts until one goes without, whose time is what the others are compared with. At the smallest
# size it comes sooner: what was compared with may be of before others began to use the machine.
STEPS_BETWEEN, STEPS_BETWEEN_SMALL = 16, 4
FASTER = 1.5  # so many times faster than the step before, the machine is another one


class PrefillBudget:
    """Remembers the time of steps by their rows, and picks the largest size that is short enough."""

    def __init__(self) -> None:
        self._alone: deque[tuple[int, float]] = deque(
            maxlen=RECENT_STEPS
        )  # rows and seconds, without prompts
        self._mixed: dict[int, deque[tuple[int, float]]] = (
            defaultdict(  # by size: number of the step, seconds
                lambda: deque(maxlen=RECENT_STEPS)
            )
        )
        self._step = 0  # counts those with prompts
        self._since = 0  # steps with prompts since one without
        self._bound: int | None = None  # of the step that is planned
        self._waited = 0.0  # seconds beside answers since a step that had no prompt, although it might

    def prompt_tokens(self, rows: int) -> int | None:
        """The tokens of prompts beside so many rows of answers and their drafts; None: no bound."""
        self._bound = self._prompt_tokens(rows)
        return self._bound

    def _prompt_tokens(self, rows: int) -> int | None:
        fewest = FEWEST_TOKENS if self._waited < PATIENCE else FEWEST_TOKENS_LATER
        sizes = [size for size in SIZES if size >= rows + fewest]
        if not rows or not sizes:
            return None
        if not self._alone:
            return 0
        size = self._largest(sizes, LONGEST_STEP * self._time_alone(rows))
        if self._since >= (STEPS_BETWEEN_SMALL if size == sizes[0] else STEPS_BETWEEN):
            return 0
        return None if size is None else size - rows

    def learn(self, plan: Plan, seconds: float) -> None:
        """How long a step took."""
        rows = sum(len(row.token_ids) for row in plan.rows)
        prompts = sum(len(row.token_ids) for row in plan.rows if row.is_prefill)
        if prompts < rows:  # prompts alone are not held up by answers
            held = prompts > 0 or self._bound == 0
            self._waited = self._waited + seconds if held else 0.0
        self._bound = None
        if not prompts:
            before = [time for number, time in self._alone if number == rows]
            if before and FASTER * seconds < min(before):
                self._mixed.clear()
            self._alone.append((rows, seconds))
            self._since = 0
        elif prompts < rows:
            self._step += 1
            self._since += 1
            if rows in SIZES:
                self._mixed[rows].append((self._step, seconds))

    def _largest(self, sizes: list[int], longest: float) -> int | None:
        """The largest size that is short enough, or the one after it for a trial; None if all are."""
        best = sizes[0]
        for size in sizes:
            times = [time for step, time in self._mixed[size] if self._step - step <= STEPS_TO_FORGET]
            if len(times) < TRIALS and min(times, default=longest + 1) > longest:
                return size
            if min(times) > longest:
                return best
            best = size
        return None

    def _time_alone(self, rows: int) -> float:
        """Of a step of so many rows; of fewer, or else of more, if none of the latest had so many."""
        known = {number for number, _ in self._alone}
        nearest = max((number for number in known if number <= rows), default=min(known))
        return min(time for number, time in self._alone if number == nearest)
