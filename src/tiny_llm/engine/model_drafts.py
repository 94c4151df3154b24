"""When an answer takes drafts of a small model: while they save more time than they cost."""

from collections.abc import Sequence

WEIGHT = 0.25  # of the newest step in the mean gain
FIRST_GAIN = 1.0  # tokens; some wrong drafts must not end the first try
LATER_GAIN = 0.5
# Steps to wait after drafts that did not pay, doubled each time.
FIRST_PAUSE = 8
MOST_PAUSE = 256


class ModelDrafts:
    """The wishes of one answer for drafts.

    most: drafts of a step. cost: of a step of the small model, in steps of the large one.
    """

    def __init__(self, most: int, cost: float):
        self._most, self._cost = most, cost
        self._gain = FIRST_GAIN  # accepted drafts less what they cost, of a step
        self._pause = 0
        self._next_pause = FIRST_PAUSE

    def fork(self) -> "ModelDrafts":
        """Those of another answer to the same prompt."""
        return ModelDrafts(self._most, self._cost)

    def propose(self) -> Sequence[int]:
        """Placeholders for the drafts of the next step; none where they do not pay."""
        if self._pause > 0:
            self._pause -= 1
            return ()
        return [0] * self._most

    def learn(self, drafted: int, accepted: int) -> None:
        """After a step that verified drafts: how many were right."""
        if drafted == 0:
            return
        gain = accepted - (drafted + 1) * self._cost  # one more step computes the keys of the last draft
        if gain > 0:
            self._next_pause = FIRST_PAUSE
        self._gain += WEIGHT * (gain - self._gain)
        if self._gain < 0:
            self._gain = LATER_GAIN
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, MOST_PAUSE)
