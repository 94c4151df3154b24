"""One prompt, one answer: with and without a cache, with a draft model, and as a stream of text."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .engine.generation import Generation
from .engine.protocols import CachedModel, FullContextModel, Tokenizer
from .engine.speculative import speculative_tokens
from .engine.text import (
    TextStream,
    check_vocabularies,
    check_vocabulary_sizes,
    context_length,
    encode_prompt,
    end_tokens,
)
from .engine.tokens import Chooser, cached_tokens, full_context_tokens
from .sampler import Sampler, make_sampler
from .sampling.params import GREEDY, Sampling
from .sampling.penalty import LogitsProcessor
from .sampling.stop import StopStrings

PREFILL_STEP = 512  # tokens of a prompt that are read at once
DRAFTS = 4  # guesses of a draft model in a round

# From the ids of a prompt and the number of tokens wanted to the tokens of the answer.
Source = Callable[[list[int], int], Iterator[int]]


def simple_generate(
    model: FullContextModel, tokenizer: Tokenizer, prompt: str, sampler: Sampler | None
) -> str:
    """Print the answer to `prompt` as it grows, and return it. Every step reads the whole text again.

    `model` maps ids [1, L] to logits [1, L, V]; `sampler` maps log probabilities [1, V] to an id [1], and
    None takes the most probable one. The answer ends with an end token, or where the model's context does.
    """

    def source(ids: list[int], limit: int) -> Iterator[int]:
        return full_context_tokens(model, ids, Chooser(ids, sampler), limit)

    answer = ""
    for piece in _begin("simple_generate", [model], tokenizer, prompt, source):
        print(piece, end="", flush=True)
        answer += piece
    return answer


def simple_generate_with_kv_cache(
    model: CachedModel, tokenizer: Tokenizer, prompt: str, *, sampler: Sampler | None = None
) -> str:
    """Return the answer to `prompt`, which is read once; then each step reads the newest token only.

    `model` maps ids [1, L], the position of the first, and a cache to logits [1, L, V].
    """

    def source(ids: list[int], limit: int) -> Iterator[int]:
        return cached_tokens(model, ids, Chooser(ids, sampler), limit, prefill_step=PREFILL_STEP)

    return "".join(_begin("simple_generate_with_kv_cache", [model], tokenizer, prompt, source))


def speculative_generate(
    draft_model: CachedModel,
    model: CachedModel,
    draft_tokenizer: Tokenizer,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    sampling: Sampling = GREEDY,
) -> str:
    """Return what `model` alone would answer, with `draft_model` guessing ahead.

    By default that is the greedy answer, word for word unless two tokens are equally likely within rounding;
    a `sampling` with a temperature gives answers of the same distribution. Both tokenizers must have the same
    vocabulary, and both models, but for padding.
    """
    check_vocabularies("speculative_generate", draft_tokenizer, tokenizer)
    check_vocabulary_sizes("speculative_generate", draft_model, model)
    source = partial(_speculate, draft_model, model, sampling, PREFILL_STEP)
    return "".join(_begin("speculative_generate", [model, draft_model], tokenizer, prompt, source))


def stream_generate(
    model: Any,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    sampling: Sampling = GREEDY,
    processors: Sequence[LogitsProcessor] = (),
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    prefill_step: int = PREFILL_STEP,
    draft_model: CachedModel | None = None,
    draft_tokenizer: Tokenizer | None = None,
) -> Generation:
    """Answer `prompt` piece by piece. The result also tells why the answer ended, and how fast it was.

    A model with `create_kv_cache` uses it. The answer ends with an end token, before one of the `stop`
    strings, behind `max_tokens` tokens, or where the model's context does. What cannot work is refused here,
    before the first piece is asked for.
    """
    if prefill_step < 1:
        raise ValueError(f"stream_generate: prefill_step: got {prefill_step}, expected at least 1")
    models = [model]
    if draft_model is not None:
        _check_draft(model, processors)
        check_vocabularies("stream_generate", draft_tokenizer or tokenizer, tokenizer)
        check_vocabulary_sizes("stream_generate", draft_model, model)
        models.append(draft_model)

    def source(ids: list[int], limit: int) -> Iterator[int]:
        if draft_model is not None:
            return _speculate(draft_model, model, sampling, prefill_step, ids, limit)
        choose = Chooser(ids, _sampler(sampling), processors)
        if hasattr(model, "create_kv_cache"):
            return cached_tokens(model, ids, choose, limit, prefill_step=prefill_step)
        return full_context_tokens(model, ids, choose, limit)

    return _begin("stream_generate", models, tokenizer, prompt, source, max_tokens, stop)


def _begin(
    function: str,
    models: list[Any],
    tokenizer: Tokenizer,
    prompt: str,
    source: Source,
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
) -> Generation:
    """Check the prompt against all models that will read it, and start the answer."""
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"{function}: max_tokens: got {max_tokens}, expected at least 1")
    ids = encode_prompt(function, models, tokenizer, prompt)
    room = [context - len(ids) for context in map(context_length, models) if context is not None]
    limit = min([*room, sys.maxsize if max_tokens is None else max_tokens])
    text = TextStream(tokenizer.detokenizer)
    return Generation(source(ids, limit), text, end_tokens(tokenizer), StopStrings(stop), len(ids))


def _speculate(
    draft_model: CachedModel,
    model: CachedModel,
    sampling: Sampling,
    prefill_step: int,
    ids: list[int],
    limit: int,
) -> Iterator[int]:
    return speculative_tokens(
        draft_model, model, ids, sampling, limit, drafts=DRAFTS, prefill_step=prefill_step
    )


def _sampler(sampling: Sampling) -> Sampler | None:
    """None where no scores are needed to choose: the most probable token."""
    if sampling.temp == 0:
        return None
    return make_sampler(
        sampling.temp, sampling.top_p, sampling.top_k, min_p=sampling.min_p, seed=sampling.seed
    )


def _check_draft(model: Any, processors: Sequence[LogitsProcessor]) -> None:
    if not hasattr(model, "create_kv_cache"):
        raise ValueError(
            "stream_generate: draft_model: got one for a model without a cache, expected a model with "
            "create_kv_cache: guesses that are dropped must be rewound"
        )
    if processors:
        raise NotImplementedError(
            "stream_generate: processors: got some and a draft model, expected one or the other"
        )
