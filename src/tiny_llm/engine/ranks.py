"""Steps in several processes: rank 0 tells each step to the others, and all compute it together."""

from __future__ import annotations

import time
import weakref
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from ..distributed.leader import Leader
from ..distributed.messages import Frame, Kind, json_frame
from ..errors import RankLost, UnsupportedError
from ..generation.loaded import LoadedModel
from ..models.packed import has_paged_kernel
from ..runtime.ranks import Ranks
from ..scheduler import Plan, RequestState, Row, Status
from .dense import DenseRunner
from .runner import Runner, make_runner
from .sizes import PoolSize

STOP_SECONDS = 10

_leading: weakref.WeakSet[LeadingRunner] = weakref.WeakSet()  # at most one


class LeadingRunner:
    """The runner of rank 0, which the others follow. A fault in one of them ends the engine."""

    def __init__(self, runner: Runner | DenseRunner, ranks: Ranks, leader: Leader, **settings: Any):
        leader.check()
        end = time.monotonic() + STOP_SECONDS
        while _leading and time.monotonic() < end:  # an engine that was dropped ends after its step
            time.sleep(0.01)
        if _leading:
            # Two engines would start their operations in an order of their own in each process.
            raise UnsupportedError("Engine", "llm", "a model on several ranks", "one engine at a time for it")
        self._runner = runner
        self._ranks = ranks
        self._leader = leader
        self._numbers: dict[RequestState, int] = {}  # what the followers call a request
        self._next_number = 0
        leader.send(json_frame(Kind.START, settings))
        _leading.add(self)

    @property
    def starts_at_once(self) -> bool:
        """Whether the last logits can be started without waiting."""
        return self._runner.starts_at_once and self._ranks.kind == "tensor"

    def logits(self, plan: Plan, token_ids: mx.array | None = None) -> mx.array:
        """The logits [R, V] that the rows of a plan want, in order; nothing is evaluated.

        `token_ids` are those of all rows, if they are not computed yet.
        """
        numbers = array("i", [token_ids is not None, *self._ended()])
        for row in plan.rows:
            if row.state not in self._numbers:
                self._numbers[row.state] = self._next_number
                self._next_number += 1
        self._leader.send(Frame(Kind.STEP, write_step(numbers, plan, self._numbers)))
        if token_ids is not None:
            token_ids = self._ranks.sum(token_ids.astype(mx.int32))
        return self._runner.logits(plan, token_ids)

    def rest(self) -> None:
        """Nothing runs: free what only the next step would."""
        self._leader.check()
        ended = self._ended()
        if len(ended) > 1:
            self._leader.send(Frame(Kind.REST, array("i", ended).tobytes()))
        self._runner.rest()

    def _ended(self) -> list[int]:
        """How many requests do not run any more, and their numbers."""
        states = [state for state in self._numbers if state.status is not Status.RUNNING]
        return [len(states), *(self._numbers.pop(state) for state in states)]


def write_step(numbers: array[int], plan: Plan, names: dict[RequestState, int]) -> bytes:
    """A step as numbers, after those that are given."""
    numbers += array("i", [len(plan.copies), *(page for pair in plan.copies for page in pair)])
    for row in plan.rows:
        sizes = names[row.state], row.start, row.scored, row.page_size, len(row.token_ids), len(row.pages)
        numbers += array("i", sizes) + row.token_ids + row.pages
    return numbers.tobytes()


def keeps_prefixes(llm: LoadedModel, grows: bool) -> bool:
    """Whether a prefix can be kept: followers know no tokens, by which dense caches find one."""
    return llm.leader is None or not grows or has_paged_kernel(llm.model)


def run_model(
    llm: LoadedModel, size: PoolSize, settings: dict[str, bool], on_lost: Callable[[RankLost], bool]
) -> Runner | DenseRunner | LeadingRunner:
    """What runs the steps of an engine, in one process or several. `on_lost` is called if one of them is."""
    if llm.leader is None:
        return make_runner(llm.model, size, **settings)
    runner = make_runner(llm.model, size, **settings)
    pages = {"page_size": size.page_size, "num_pages": size.num_pages}
    leading = LeadingRunner(runner, llm.model.ranks, llm.leader, pages=pages, settings=settings)
    llm.leader.on_lost = on_lost  # of the engine that runs, not of one that was refused
    return leading


class FollowedStates:
    """The requests of rank 0, of which a follower knows when they end."""

    def __init__(self) -> None:
        self._states: dict[int, RequestState] = {}

    def end(self, numbers: Iterator[int]) -> None:
        """The next numbers: how many requests have ended, and which."""
        for _ in range(next(numbers)):
            state = self._states.pop(next(numbers), None)
            if state is not None:
                state.status = Status.FINISHED

    def read_step(self, frame: Frame) -> tuple[Plan, bool]:
        """A step, and whether its tokens are still being computed."""
        numbers = iter(frame.numbers())
        is_ahead = bool(next(numbers))
        self.end(numbers)
        copies = tuple((next(numbers), next(numbers)) for _ in range(next(numbers)))
        rows = []
        for number in numbers:
            start, scored, page_size, tokens, pages = (next(numbers) for _ in range(5))
            token_ids = array("i", [next(numbers) for _ in range(tokens)])
            state = self._states.get(number)
            if state is None:
                state = self._states[number] = RequestState(str(number), [0], 1)
                state.status = Status.RUNNING
            row_pages = array("i", [next(numbers) for _ in range(pages)])
            rows.append(Row(state, start, token_ids, scored, row_pages, page_size))
        return Plan(tuple(rows), copies), is_ahead


def follow_step(runner: Runner | DenseRunner, ranks: Ranks, plan: Plan, is_ahead: bool) -> None:
    """Compute the share of this process in a step."""
    token_ids = None
    if is_ahead:
        token_ids = ranks.sum(mx.zeros(sum(len(row.token_ids) for row in plan.rows), mx.int32))
    mx.eval(runner.logits(plan, token_ids))
