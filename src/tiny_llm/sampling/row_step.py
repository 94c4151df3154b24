"""One draw for all rows of a batch: a row has a position, and one more for each of its drafts."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx

from ..errors import GrammarError, NumericError, StepFailed, TinyLlmError
from .draw import draw_at, probabilities
from .grammar import apply_masks
from .row_sampler import ACCEPT, RowSampler
from .select import argmax, categorical_at, log_probabilities, logsumexp, selected_logits
from .verify import count_accepted, residual_probs

Top = tuple[tuple[int, float], ...]


class Drawn(NamedTuple):
    """A token with its log probability and the most probable ones, if requested; or what failed."""

    token_id: int
    logprob: float | None = None
    top: Top = ()
    error: TinyLlmError | None = None


class RowStep:
    """The tokens of one step: first `draw` or `reject` each row, then `results`, which waits for them."""

    def __init__(
        self,
        logits: mx.array,
        rows: Sequence[RowSampler],
        drafts: Sequence[Sequence[int]],
        logprobs: Sequence[int | None],
    ):
        self._logits = logits
        self._rows = rows
        self._drafts = drafts
        self._logprobs = logprobs
        self._positions: list[range] = []  # of each row
        for each in drafts:
            first = self._positions[-1].stop if self._positions else 0
            self._positions.append(range(first, first + len(each) + 1))
        self._owners = [row for row, positions in enumerate(self._positions) for _ in positions]
        self._errors: dict[int, TinyLlmError] = {}  # by row
        self._accepted: dict[int, int] = {}  # how many drafts, by row with rejection sampling
        # For each group of rows: their positions, the tokens there, and the logits by which they are chosen.
        self._drawn: list[tuple[list[int], mx.array, mx.array]] = []
        self._listed: tuple[Sequence[int], Sequence[mx.array]] = (), ()  # positions, log probabilities
        # By position, as soon as they are known.
        self._tokens: dict[int, int] = {}
        self._chosen_by: dict[int, float] = {}
        # logsumexp of the raw logits where it is needed, evaluated with the tokens; NaN if one of them is.
        self._needed = [p for p in range(len(self._owners)) if self._needs_total(p)]
        self._totals = logsumexp(_take(logits, self._needed)).squeeze(-1) if self._needed else None
        # The positions of rows that change logits, and their changed logits in this order.
        self._changed = [p for p, row in enumerate(self._owners) if rows[row].changes_logits]
        self._changed_logits = self._change() if self._changed else logits

    def draw(self, rows: Sequence[int]) -> None:
        """Draw a token at every position of these rows: one operation for all rows of equal filters.

        Nothing waits for the tokens here.
        """
        groups = defaultdict(list)
        for row in rows:
            sampling = self._rows[row].sampling
            filters = (sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p)
            groups[self._rows[row].changes_logits, *filters].append(row)
        for members in groups.values():
            scores, sampling = self._scores(members), self._rows[members[0]].sampling
            if sampling.temp == 0:
                ids = argmax(scores)
            else:
                places = [(row, place) for row in members for place in range(len(self._positions[row]))]
                numbers = [self._rows[row].uniform(place) for row, place in places]
                ids = draw_at(scores, sampling, mx.array(numbers))
            positions = [position for row in members for position in self._positions[row]]
            self._drawn.append((positions, ids, selected_logits(scores, ids)))

    def reject(self, row: int, draft_probs: mx.array) -> None:
        """Rejection sampling of the drafts of a row."""
        sampler, drafts = self._rows[row], self._drafts[row]
        scores = self._scores([row])
        target = probabilities(scores, sampler.sampling)
        numbers = mx.array([sampler.uniform(place, ACCEPT) for place in range(len(drafts))], mx.float32)
        accepted = count_accepted(target, draft_probs, mx.array(list(drafts), mx.int32), numbers)
        count: Any = accepted.item()
        residual = mx.log(residual_probs(target, draft_probs, accepted))
        token: Any = categorical_at(residual, mx.array(sampler.uniform(count))).item()
        positions = self._positions[row]
        self._accepted[row] = count
        tokens = [*drafts[:count], token]
        selected = mx.take_along_axis(scores[: count + 1], mx.array(tokens)[:, None], axis=-1)
        values: Any = selected.squeeze(-1).tolist()
        self._tokens |= zip(positions, tokens, strict=False)
        self._chosen_by |= zip(positions, values, strict=False)

    def start(self) -> None:
        """Begin to compute what was drawn, and log probabilities if it is certain which are wanted."""
        wanting = [] if any(self._drafts) else self._wanting(range(len(self._owners)))
        if wanting:
            self._list(wanting, _take(self.ids, wanting))
        arrays = [array for _, *arrays in self._drawn for array in arrays]
        arrays += self._listed[1] if self._totals is None else (self._totals, *self._listed[1])
        mx.async_eval(arrays)  # type: ignore[no-untyped-call]

    @property
    def starts_at_once(self) -> bool:
        """Whether there are so few operations that starting them takes no time beside those of a model."""
        return len(self._drawn) + len(self._changed) <= 4 and not self._accepted

    @property
    def ids(self) -> mx.array:
        """The drawn tokens [N], in the order of the positions; nothing is evaluated."""
        if len(self._drawn) == 1:
            return self._drawn[0][1]
        order = [position for positions, *_ in self._drawn for position in positions]
        places = sorted(range(len(order)), key=order.__getitem__)
        return mx.concatenate([ids for _, ids, _ in self._drawn])[mx.array(places)]

    def results(self) -> list[list[Drawn]]:
        """The tokens of each row up to the first that is no accepted draft, or up to an error."""
        for group, ids, selected in self._drawn:
            tokens: Any = ids.tolist()
            chosen_by: Any = selected.squeeze(-1).tolist()
            self._tokens |= zip(group, tokens, strict=True)
            self._chosen_by |= zip(group, chosen_by, strict=True)
        kept = [self._kept(row) for row in range(len(self._rows))]
        all_kept = [position for positions in kept for position in positions]
        values: Any = [] if self._totals is None else self._totals.tolist()
        totals: dict[int, float] = dict(zip(self._needed, values, strict=True))
        if any(self._drafts):
            wanting = self._wanting(all_kept)
            self._list(wanting, mx.array([self._tokens[position] for position in wanting]))
        listed = self._listed_values()
        found = []
        for row, positions in enumerate(kept):
            drawn: list[Drawn] = []
            for position in positions:
                error = self._errors.get(row) or self._error(position, totals)
                if error is not None:
                    drawn.append(Drawn(-1, error=error))
                    break
                drawn.append(Drawn(self._tokens[position], *listed.get(position, ())))
            found.append(drawn)
        return found

    def _kept(self, row: int) -> range:
        """The positions of accepted drafts and of the token after them."""
        positions, endings = self._positions[row], self._rows[row].ending_tokens
        for place, draft in enumerate(self._drafts[row]):
            token = self._tokens[positions[place]]
            is_accepted = place < self._accepted[row] if row in self._accepted else token == draft
            if not is_accepted or token in endings:
                return positions[: place + 1]
        return positions

    def _error(self, position: int, totals: dict[int, float]) -> TinyLlmError | None:
        row = self._rows[self._owners[position]]
        if row.is_plain:  # as in a `GreedyStep`, where nothing else is known
            return NumericError() if math.isnan(self._chosen_by[position]) else None
        if not math.isfinite(totals[position]):
            return NumericError()
        if self._chosen_by[position] == -math.inf:
            return GrammarError("the model gives every allowed token the probability 0")
        return None

    def _needs_total(self, position: int) -> bool:
        return not self._rows[self._owners[position]].is_plain or self._wants(position) is not None

    def _list(self, positions: Sequence[int], ids: mx.array) -> None:
        """Begin the log probabilities of the tokens `ids` at these positions, which want some."""
        if not positions:
            return
        places = {position: place for place, position in enumerate(self._needed)}
        assert self._totals is not None
        totals = self._totals[mx.array([places[position] for position in positions])][:, None]
        most = max(self._wants(position) or 0 for position in positions)
        self._listed = positions, log_probabilities(_take(self._logits, positions), ids, most, totals)

    def _listed_values(self) -> dict[int, tuple[float, Top]]:
        """Log probability of the token, and most probable tokens, by position where requested."""
        positions, arrays = self._listed
        values: list[Any] = [array.tolist() for array in arrays] or [(), (), ()]
        return {
            position: (logprob, tuple(zip(top_ids, top, strict=True))[: self._wants(position)])
            for position, (logprob,), top_ids, top in zip(positions, *values, strict=True)
        }

    def _wanting(self, positions: Sequence[int]) -> list[int]:
        """Those at which log probabilities are wanted."""
        return [position for position in positions if self._wants(position) is not None]

    def _wants(self, position: int) -> int | None:
        return self._logprobs[self._owners[position]]

    def _scores(self, rows: Sequence[int]) -> mx.array:
        """The logits of all positions of these rows, which all change logits or none does."""
        positions = [position for row in rows for position in self._positions[row]]
        if not self._rows[rows[0]].changes_logits:
            return _take(self._logits, positions)
        places = {position: place for place, position in enumerate(self._changed)}
        return _take(self._changed_logits, [places[position] for position in positions])

    def _change(self) -> mx.array:
        """The float32 logits after penalties, biases and grammars, for all positions that have any."""
        masks: list[bytes | None] = []
        for index, (row, drafts) in enumerate(zip(self._rows, self._drafts, strict=True)):
            if not row.changes_logits:
                continue
            try:
                masks += row.masks(drafts)
            except Exception as error:  # of this row alone; llguidance has faults of its own
                self._errors[index] = error if isinstance(error, GrammarError) else StepFailed(error)
                masks += [None] * (len(drafts) + 1)
        logits = self._processed().astype(mx.float32)
        return apply_masks(logits, masks) if any(mask is not None for mask in masks) else logits

    def _processed(self) -> mx.array:
        """The logits after penalties and biases, for all positions of rows that change logits."""
        if not any(self._rows[self._owners[position]].has_processors for position in self._changed):
            return _take(self._logits, self._changed)
        processed = []
        for position in self._changed:
            row = self._owners[position]
            drafts = self._drafts[row][: position - self._positions[row].start]
            processed.append(self._rows[row].process(self._logits[position : position + 1], drafts))
        return mx.concatenate(processed)


def _take(array: mx.array, positions: Sequence[int]) -> mx.array:
    """Those rows of `array`."""
    return array if list(positions) == list(range(array.shape[0])) else array[mx.array(list(positions))]
