"""A list of prompts: an engine of its own answers them, some at a time, in the memory that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from queue import SimpleQueue
from typing import Any

from ..errors import AnswerError, ArgumentError, GrammarError
from ..generation.batching import run_batch
from ..generation.defaults import prefill_chunk
from ..generation.loaded import LoadedModel
from ..generation.request import Request
from ..generation.result import FinishReason, Result, Statistics, TokenLogprobs, checked_results
from ..models.cached_attention import attend_flash
from ..models.invariance import check_invariant
from ..runtime.device import on_device
from ..runtime.gpu import computes_on_gpu
from .engine import Engine
from .request import EngineRequest, Handle
from .sizes import PAGE_SIZE, batch_memory

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

    On a GPU, where dense caches are faster than pages, and for a model without FlashAttention, the loop of
    the course answers the requests.
    """
    if not requests:
        return []
    batch_size = min(batch_size, len(requests))
    with on_device(llm.device):
        prefill_tokens = prefill_tokens or prefill_chunk()
        if computes_on_gpu() or not _has_flash_attention(llm):
            return _answer_on_dense_caches(llm, requests, batch_size, prefill_tokens, finished)
    results: dict[int, Result] = {}
    with closing(_answers(llm, requests, batch_size, prefill_tokens, batch_invariant)) as answers:
        for index, result in answers:
            results[index] = result
            if finished is not None:
                finished(index, result)
    return checked_results([results[index] for index in range(len(requests))])


def check_list_invariant(llm: LoadedModel) -> None:
    """Raise ArgumentError for a model whose answers to a list cannot be batch invariant."""
    with on_device(llm.device):
        check_invariant("", llm.model)
    if not _has_flash_attention(llm):
        raise ArgumentError("", "batch_invariant", "True without FlashAttention", "False")


def _has_flash_attention(llm: LoadedModel) -> bool:
    return llm.model.layers_inner[0].self_attn.ops.attend is attend_flash


def _answers(
    llm: LoadedModel,
    requests: Sequence[EngineRequest],
    batch_size: int,
    prefill_tokens: int,
    batch_invariant: bool,
) -> Generator[tuple[int, Result], None, None]:
    """The number of each request with its answer, in the order in which they end."""
    arrival = time.monotonic()
    lengths = [_length(request) for request in requests]
    with on_device(llm.device):
        kv_memory = batch_memory(llm.model, lengths, batch_size)
    engine = Engine(
        # The last token of an answer needs no place in the context: it is not computed.
        LoadedModel(llm.name, llm.model, llm.tokenizer, llm.device, max(llm.context, *lengths, 2)),
        kv_memory=kv_memory,
        max_context=max(lengths),
        step_tokens=batch_size + prefill_tokens,
        max_running=batch_size,
        max_waiting=2 * batch_size,
        prefix_cache=_share_a_page(requests),
        grows=True,
        batch_invariant=batch_invariant,
    )
    ended: SimpleQueue[int] = SimpleQueue()
    submitted: dict[int, Handle | Result] = {}
    waiting = iter(enumerate(requests))
    with engine:

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
            yield index, found if isinstance(found, Result) else _result(found, arrival)


def _result(handle: Handle, arrival: float) -> Result:
    """The answer of a request that has ended, of a list that came at `arrival`."""
    events = list(handle)
    timings = handle.timings[0]
    error = events[-1].error
    if error is not None and not isinstance(error, AnswerError):
        raise error
    first = timings.first_token_seconds
    statistics = Statistics(
        handle.prompt_tokens,
        timings.generated_tokens,
        time_to_first_token=0.0 if first is None else first - timings.queue_seconds,
        decode_seconds=0.0 if first is None else timings.seconds - first,
        queued_seconds=handle.submitted_at - arrival + timings.queue_seconds,
        cached_tokens=handle.cached_tokens,
    )
    reasons: dict[Any, FinishReason] = {"stop": "stop", "length": "length"}
    logprobs: list[TokenLogprobs] | None = None
    for event in events:
        if event.logprobs is not None:
            logprobs = [*(logprobs or ()), *event.logprobs]
    return Result(
        "".join(event.text for event in events),
        tuple(token for event in events for token in event.token_ids),
        reasons.get(timings.finish_reason),
        statistics,
        None if logprobs is None else tuple(logprobs),
        error,
    )


def _length(request: EngineRequest) -> int:
    """The most tokens of a prompt and its answer."""
    assert request.sampling.max_tokens is not None
    return len(request.prompt_ids) + request.sampling.max_tokens


def _share_a_page(requests: Sequence[EngineRequest]) -> bool:
    """Whether two prompts begin with the same page. If none do, no page is kept for later requests."""
    beginnings = [
        tuple(request.prompt_ids[:PAGE_SIZE]) for request in requests if len(request.prompt_ids) > PAGE_SIZE
    ]
    return len(set(beginnings)) < len(beginnings)


def _answer_on_dense_caches(
    llm: LoadedModel,
    requests: Sequence[EngineRequest],
    batch_size: int,
    prefill_tokens: int,
    finished: Finished | None,
) -> list[Result]:
    arrival = time.perf_counter()

    def make_request(index: int) -> Request:
        request = requests[index]
        return Request(
            llm.model,
            llm.tokenizer,
            "",  # its ids are known
            prefill_tokens,
            index,
            sampling=request.sampling,
            logprobs=request.logprobs,
            limit=request.sampling.max_tokens,
            prompt_ids=list(request.prompt_ids),
            arrival_time=arrival,
            grammar=request.grammar,
        )

    def report(request: Request) -> None:
        if finished is not None:
            finished(request.prompt_idx, request.result)

    longest = max(map(_length, requests)) - 1  # the last token is not computed
    try:
        done = run_batch(llm.model, len(requests), make_request, longest, batch_size, report)
    except AnswerError as error:
        for index, result in enumerate(error.results):
            if finished is not None and result.error is not None:
                finished(index, result)
        raise
    return [request.result for request in done]
