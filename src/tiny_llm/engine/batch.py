"""A list of prompts: an engine of its own answers them, some at a time, in the memory that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from queue import SimpleQueue

from ..errors import AnswerError, ArgumentError, GrammarError
from ..generation.loaded import LoadedModel
from ..generation.result import Result, Statistics, checked_results
from ..models.invariance import check_invariant
from ..models.packed import has_paged_kernel
from ..runtime.device import on_device
from .engine import Engine
from .request import EngineRequest, Handle
from .requests import engine_for, request_length
from .sizes import PAGE_SIZE
from .stream import received_all

Finished = Callable[[int, Result], None]


def answer_all(
    llm: LoadedModel,
    requests: Sequence[EngineRequest],
    *,
    batch_size: int,
    prefill_tokens: int | None = None,
    finished: Finished | None = None,
    batch_invariant: bool = False,
) -> list[Result]:
    """The answers to requests with one answer and `max_tokens` each, in order; `batch_size` run at a time.

    A step computes `prefill_tokens` tokens of prompts (by default as many as are fast on the device) beside a
    token of each running answer. `finished` is called with the number of a request and its answer when it is
    complete or has an error. NaN, or an error of a grammar, ends only its own answer: the others run to their
    end, then it is raised with all results. Any other error ends all.

    batch_invariant: the bits of an answer's logits do not depend on the other requests; for models that
        `check_list_invariant` accepts.
    """
    if not requests:
        return []
    arrival = time.monotonic()
    batch_size = min(batch_size, len(requests))
    engine = engine_for(
        llm,
        [request_length(request) for request in requests],
        batch_size,
        prefill_tokens,
        prefix_cache=_share_a_page(requests),
        batch_invariant=batch_invariant,
        lookup=True,
    )
    results: dict[int, Result] = {}
    with engine, closing(_answers(engine, requests, batch_size, arrival)) as answers:
        for index, result in answers:
            results[index] = result
            if finished is not None:
                finished(index, result)
    return checked_results([results[index] for index in range(len(requests))])


def check_list_invariant(llm: LoadedModel) -> None:
    """Raise ArgumentError for a model whose answers to a list cannot be batch invariant."""
    with on_device(llm.device):
        check_invariant("", llm.model)
        if not has_paged_kernel(llm.model):
            raise ArgumentError("", "batch_invariant", "True without FlashAttention", "False")


def _answers(
    engine: Engine, requests: Sequence[EngineRequest], batch_size: int, arrival: float
) -> Generator[tuple[int, Result], None, None]:
    """The number of each request with its answer, in the order in which they end."""
    ended: SimpleQueue[int] = SimpleQueue()
    submitted: dict[int, Handle | Result] = {}
    waiting = iter(enumerate(requests))

    def submit_next() -> None:
        index, request = next(waiting, (None, None))
        if index is None or request is None:
            return
        try:
            handle = engine.submit(request)
        except ArgumentError as error:  # its grammar has been given up since the list began
            if request.grammar is None:
                raise
            statistics = Statistics(len(request.prompt_ids))
            submitted[index] = Result("", (), None, statistics, error=GrammarError(error.reason))
            ended.put(index)
        else:
            submitted[index] = handle
            handle.call_at_end(lambda: ended.put(index))

    for _ in range(2 * batch_size):  # so that as many wait as may run, and no step waits for one
        submit_next()
    while submitted:
        index = ended.get()
        submit_next()
        found = submitted.pop(index)
        yield index, found if isinstance(found, Result) else _result(requests[index], found, arrival)


def _result(request: EngineRequest, handle: Handle, arrival: float) -> Result:
    """The answer of a request that has ended, of a list that came at `arrival`."""
    received = received_all(request, handle, arrival)
    error, statistics = received.error, received.statistics
    if error is not None and not isinstance(error, AnswerError):
        raise error
    statistics.queued_seconds = handle.submitted_at - arrival + handle.timings[0].queue_seconds
    statistics.time_to_first_token = max(0.0, statistics.time_to_first_token - statistics.queued_seconds)
    return received.result(error)


def _share_a_page(requests: Sequence[EngineRequest]) -> bool:
    """Whether two prompts begin with the same page. If none do, no page is kept for later requests."""
    beginnings = [
        tuple(request.prompt_ids[:PAGE_SIZE]) for request in requests if len(request.prompt_ids) > PAGE_SIZE
    ]
    return len(set(beginnings)) < len(beginnings)
