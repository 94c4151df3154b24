"""From a caller's arguments to requests, to an engine in the memory that they need, and to answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from ..checks.types import check_size
from ..errors import AnswerError, ArgumentError, GrammarError
from ..generation.defaults import MAX_TOKENS, prefill_chunk
from ..generation.loaded import LoadedModel
from ..generation.options import ResponseFormat
from ..generation.result import Result, Statistics, checked_results
from ..generation.text import answer_limit, check_sampling
from ..models.invariance import check_invariant
from ..models.packed import has_paged_kernel
from ..runtime.device import on_device
from ..sampling.grammar import read_response_format, start_grammar
from ..sampling.params import Sampling
from .engine import Engine
from .request import EngineRequest, Handle
from .sizes import PAGE_SIZE, batch_memory
from .stream import received_all

Finished = Callable[[int, Result], None]


def make_requests(
    llm: LoadedModel,
    prompt_ids: Sequence[Sequence[int]],
    sampling: Sampling,
    logprobs: int | None = None,
    response_format: ResponseFormat | None = None,
) -> list[EngineRequest]:
    """The requests of checked prompts. An answer ends with its context, or after 1024 tokens by default."""
    grammar = None if response_format is None else read_response_format(response_format)
    check_sampling("", sampling, llm.models, grammar)
    if logprobs is not None:
        check_size("", "logprobs", logprobs, minimum=0)
    if grammar is not None:
        start_grammar(llm.tokenizer, grammar)  # it is refused before anything is computed
    requests = []
    for ids in prompt_ids:
        room = answer_limit(llm.models, len(ids), sampling.max_tokens or MAX_TOKENS, llm.context)
        limits = replace(sampling.with_seed(), max_tokens=room, min_tokens=min(room, sampling.min_tokens))
        requests.append(EngineRequest(prompt_ids=ids, sampling=limits, logprobs=logprobs, grammar=grammar))
    return requests


def request_length(request: EngineRequest) -> int:
    """The most tokens of a prompt and its answer."""
    assert request.sampling.max_tokens is not None
    return len(request.prompt_ids) + request.sampling.max_tokens


def engine_for(
    llm: LoadedModel,
    lengths: Sequence[int],
    batch_size: int = 1,
    prefill_tokens: int | None = None,
    *,
    prefix_cache: bool = False,
    batch_invariant: bool = False,
    lookup: bool = False,
) -> Engine:
    """An engine for requests of these numbers of tokens, with their answers, in the memory that they need."""
    with on_device(llm.device):
        if batch_size > 1 and not has_paged_kernel(llm.model):
            # Dense caches share nothing: prompts that begin alike would be computed whole, in one step. And
            # rows with drafts are computed alone.
            prefix_cache = lookup = False
    small = None if llm.draft is None else llm.draft.model
    with on_device(llm.device):
        prefill_tokens = prefill_tokens or prefill_chunk()
        kv_memory = batch_memory(llm.model, lengths, batch_size, small)
    return Engine(
        # The last token of an answer needs no place in the context: it is not computed.
        LoadedModel(
            llm.name, llm.model, llm.tokenizer, llm.device, max(llm.context, *lengths, 2), leader=llm.leader
        ),
        kv_memory=kv_memory,
        max_context=max(lengths),
        step_tokens=batch_size + prefill_tokens,
        max_running=batch_size,
        max_waiting=2 * batch_size,
        prefix_cache=prefix_cache,
        lookup=lookup,
        grows=True,
        batch_invariant=batch_invariant,
        draft=llm.draft,
    )


def starter(llm: LoadedModel, request: EngineRequest, **options: bool) -> Callable[[], Engine]:
    """What starts the engine of one request, when its answer is first wanted."""
    return partial(engine_for, llm, [request_length(request)], **options)


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
