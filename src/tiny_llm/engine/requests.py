"""From the arguments of a caller to checked requests, and to an engine in the memory that they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..checks.types import check_size
from ..generation.defaults import MAX_TOKENS, prefill_chunk
from ..generation.loaded import LoadedModel
from ..generation.options import ResponseFormat
from ..generation.text import answer_limit, check_sampling
from ..models.packed import has_paged_kernel
from ..runtime.device import on_device
from ..sampling.grammar import read_response_format, start_grammar
from ..sampling.params import Sampling
from .engine import Engine
from .request import EngineRequest
from .sizes import batch_memory


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
