"""Answers to one prompt: with and without a cache, with a draft model, and as a stream of text."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .checks.types import check_function, check_size, check_type
from .errors import ArgumentError, UnsupportedError, calling
from .generation.defaults import prefill_chunk
from .generation.generation import Generation
from .generation.protocols import (
    CREATE_KV_CACHE,
    CachedModel,
    FullContextModel,
    TokenizerProtocol,
    has_kv_cache,
)
from .generation.speculative import speculative_tokens
from .generation.text import (
    TextStream,
    answer_limit,
    check_model,
    check_sampling,
    check_tokenizer,
    check_vocabularies,
    check_vocabulary_sizes,
    encode_prompt,
    end_tokens,
)
from .generation.tokens import TokenSampler, cached_tokens, full_context_tokens
from .sampler import Sampler
from .sampling.params import GREEDY, Sampling
from .sampling.processors import LogitsProcessor
from .sampling.stop import StopStrings

NUM_DRAFT_TOKENS = 4  # drafted before each pass of the target model

TokenStream = Callable[[list[int], int], Iterator[int]]  # (prompt ids, max new tokens) -> token ids


def simple_generate(
    model: FullContextModel, tokenizer: TokenizerProtocol, prompt: str, sampler: Sampler | None
) -> str:
    """Print the answer to `prompt` as it grows, and return it. Every step runs the model on the whole text.

    `model` maps ids [1, L] to logits [1, L, V]; `sampler` maps log probabilities [1, V] to an id [1], and
    None is greedy. The answer ends with an end token, or at the end of the model's context.
    """

    check_model("simple_generate", "model", model)
    _check_sampler("simple_generate", sampler)

    def source(ids: list[int], limit: int) -> Iterator[int]:
        return full_context_tokens(model, ids, TokenSampler(ids, sampler), limit)

    answer = ""
    for piece in _begin("simple_generate", [model], tokenizer, prompt, source):
        print(piece, end="", flush=True)
        answer += piece
    return answer


def simple_generate_with_kv_cache(
    model: CachedModel, tokenizer: TokenizerProtocol, prompt: str, *, sampler: Sampler | None = None
) -> str:
    """Return the answer to `prompt`. After the prefill, each step runs the model on the newest token only.

    `model` maps ids [1, L], the position of the first, and a cache to logits [1, L, V].
    """

    check_model("simple_generate_with_kv_cache", "model", model, CREATE_KV_CACHE)
    _check_sampler("simple_generate_with_kv_cache", sampler)

    def source(ids: list[int], limit: int) -> Iterator[int]:
        return cached_tokens(model, ids, TokenSampler(ids, sampler), limit, prefill_step=prefill_chunk())

    return "".join(_begin("simple_generate_with_kv_cache", [model], tokenizer, prompt, source))


def speculative_generate(
    draft_model: CachedModel,
    model: CachedModel,
    draft_tokenizer: TokenizerProtocol,
    tokenizer: TokenizerProtocol,
    prompt: str,
    *,
    sampling: Sampling = GREEDY,
) -> str:
    """Return the answer of `model` by speculative decoding, with drafts from `draft_model`.

    By default this is the greedy answer of `model`, unless two tokens are equally likely up to rounding; a
    `sampling` with a temperature gives answers of the same distribution as `model` alone. Tokenizers and
    models must have the same vocabulary, except for padding.
    """
    check_model("speculative_generate", "model", model, CREATE_KV_CACHE)
    check_model("speculative_generate", "draft_model", draft_model, CREATE_KV_CACHE)
    check_tokenizer("speculative_generate", "tokenizer", tokenizer)
    check_tokenizer("speculative_generate", "draft_tokenizer", draft_tokenizer)
    check_type("speculative_generate", "sampling", sampling, Sampling, "a Sampling")
    check_vocabularies("speculative_generate", draft_tokenizer, tokenizer)
    check_vocabulary_sizes("speculative_generate", draft_model, model)
    if sampling.changed_logits is not None:
        raise UnsupportedError("speculative_generate", "sampling", sampling.changed_logits, "none")
    check_sampling("speculative_generate", sampling, [model, draft_model], None)
    source = partial(_speculate, draft_model, model, sampling, prefill_chunk())
    return "".join(_begin("speculative_generate", [model, draft_model], tokenizer, prompt, source, sampling))


def stream_generate(
    model: Any,
    tokenizer: TokenizerProtocol,
    prompt: str,
    *,
    sampling: Sampling = GREEDY,
    processors: Sequence[LogitsProcessor] = (),
    max_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    prefill_step: int | None = None,
    draft_model: CachedModel | None = None,
    draft_tokenizer: TokenizerProtocol | None = None,
) -> Generation:
    """Answer `prompt` piece by piece; the result also has statistics and the reason why the answer ended.

    The answer ends with an end token, before one of the `stop` strings, after `max_tokens` tokens, or at
    the end of the model's context. `max_tokens` and `stop` replace those of `sampling` unless they are None.
    The prompt is processed in chunks of `prefill_step` tokens; None is 512 on the CPU, 2048 on a GPU. Errors
    in the arguments are raised here, not later. `LLM` does more: log probabilities, grammars, cached prompts.
    """
    check_model("stream_generate", "model", model)
    check_tokenizer("stream_generate", "tokenizer", tokenizer)
    check_type("stream_generate", "sampling", sampling, Sampling, "a Sampling")
    check_type("stream_generate", "processors", processors, list | tuple, "a list of functions")
    for index, processor in enumerate(processors):
        check_function("stream_generate", f"processors[{index}]", processor)
    for argument, size in (("prefill_step", prefill_step), ("max_tokens", max_tokens)):
        if size is not None:
            check_size("stream_generate", argument, size)
    prefill_step = prefill_step or prefill_chunk()
    with calling("stream_generate"):
        limits = sampling.with_limits(max_tokens, stop)
    models = [model]
    if draft_model is not None:
        check_model("stream_generate", "draft_model", draft_model, CREATE_KV_CACHE)
        _check_draft(model, sampling, processors)
        check_vocabularies("stream_generate", draft_tokenizer or tokenizer, tokenizer)
        check_vocabulary_sizes("stream_generate", draft_model, model)
        models.append(draft_model)
    check_sampling("stream_generate", limits, models, None)

    def source(ids: list[int], limit: int) -> Iterator[int]:
        if draft_model is not None:
            return _speculate(draft_model, model, sampling, prefill_step, ids, limit)
        sampler = TokenSampler.make(sampling, ids, end_tokens(tokenizer), processors)
        if has_kv_cache(model):
            return cached_tokens(model, ids, sampler, limit, prefill_step=prefill_step)
        return full_context_tokens(model, ids, sampler, limit)

    return _begin("stream_generate", models, tokenizer, prompt, source, limits)


def _check_sampler(function: str, sampler: Sampler | None) -> None:
    if sampler is not None:
        check_function(function, "sampler", sampler)


def _begin(
    function: str,
    models: list[Any],
    tokenizer: TokenizerProtocol,
    prompt: str,
    source: TokenStream,
    sampling: Sampling = GREEDY,
) -> Generation:
    """Check the prompt against all models that run on it, and start the answer."""
    ids = encode_prompt(function, models, tokenizer, prompt)
    limit = answer_limit(models, len(ids), sampling.max_tokens)
    text = TextStream(tokenizer.detokenizer)
    stops = StopStrings(sampling.stop)
    return Generation(
        source(ids, limit),
        text,
        sampling.ending_tokens(end_tokens(tokenizer)),
        stops,
        len(ids),
        min_tokens=sampling.min_tokens,
    )


def _speculate(
    draft_model: CachedModel,
    model: CachedModel,
    sampling: Sampling,
    prefill_step: int,
    ids: list[int],
    limit: int,
) -> Iterator[int]:
    return speculative_tokens(
        draft_model, model, ids, sampling, limit, num_draft_tokens=NUM_DRAFT_TOKENS, prefill_step=prefill_step
    )


def _check_draft(model: Any, sampling: Sampling, processors: Sequence[LogitsProcessor]) -> None:
    if not has_kv_cache(model):
        raise ArgumentError(
            "stream_generate",
            "draft_model",
            "a draft model",
            "None: the model has no KV cache to rewind rejected drafts in",
        )
    if sampling.changed_logits is not None:
        raise UnsupportedError(
            "stream_generate", "sampling", sampling.changed_logits, "none with a draft model"
        )
    if processors:
        raise UnsupportedError(
            "stream_generate", "processors", "logits processors", "none with a draft model"
        )
