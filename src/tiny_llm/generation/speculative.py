"""Speculative decoding: a small model drafts some tokens, the large one verifies them in a single pass.

The output is that of the large model alone, up to rounding: its greedy tokens, or, with a temperature,
tokens of exactly its distribution (rejection sampling). Rounding may differ, because a pass over several
tokens sums up in another order than a pass over one.
"""

from collections.abc import Iterator
from contextlib import closing

import mlx.core as mx

from ..sampling.draw import draw, probabilities, random_keys
from ..sampling.params import Sampling
from ..sampling.select import argmax, selected_logits
from ..sampling.verify import count_accepted, count_leading, fit_vocabulary, residual_probs
from .protocols import CachedModel
from .sequence import SequenceState
from .tokens import refuse_nan, token_id


def speculative_tokens(
    draft_model: CachedModel,
    model: CachedModel,
    prompt: list[int],
    sampling: Sampling,
    limit: int,
    *,
    num_draft_tokens: int,
    prefill_step: int,
) -> Iterator[int]:
    """At most `limit` tokens of `model`, up to `num_draft_tokens` + 1 in each of its passes."""
    keys = random_keys(sampling.seed)
    with closing(SequenceState(model)) as target, closing(SequenceState(draft_model)) as draft:
        logits = target.prefill(prompt, prefill_step)
        vocab_size = logits.shape[-1]
        first = draw(logits, sampling, next(keys))
        refuse_nan([selected_logits(logits, first).item()])
        newest = token_id(first)
        yield newest
        pending = [*prompt, newest]  # tokens not yet in the draft model's cache
        remaining = limit - 1
        while remaining > 0:
            num_drafts = min(num_draft_tokens, remaining - 1)
            drafts: list[mx.array] = []
            draft_probs = [mx.zeros((0, vocab_size))]
            for _ in range(num_drafts):
                logits = draft.step(drafts[-1]) if drafts else draft.prefill(pending, prefill_step)
                logits = fit_vocabulary(logits, vocab_size)
                draft_probs.append(probabilities(logits, sampling))
                drafts.append(draw(logits, sampling, next(keys)))

            logits = target.forward(mx.concatenate([mx.array([newest]), *drafts]))
            draft_ids = mx.concatenate([mx.zeros(0, mx.uint32), *drafts])
            if sampling.temp == 0:
                scores = logits
                accepted, token = verify_greedy(logits, draft_ids)
            else:
                scores = probabilities(logits, sampling)
                accepted, token = verify_sampled(
                    scores,
                    mx.concatenate(draft_probs),
                    draft_ids,
                    (next(keys), next(keys)),
                )
            score = scores[accepted, token]
            mx.eval(accepted, token, score)
            refuse_nan([score.item()])
            num_accepted, newest = token_id(accepted), token_id(token)
            target.rewind(num_drafts - num_accepted)
            tokens = [*map(token_id, drafts[:num_accepted]), newest]
            if num_drafts and num_accepted == num_drafts:  # the last draft is not in the draft model's cache
                pending = tokens[-2:]
            else:
                draft.rewind(max(num_drafts - 1 - num_accepted, 0))
                pending = [newest]
            remaining -= len(tokens)
            yield from tokens


def verify_greedy(logits: mx.array, draft_ids: mx.array) -> tuple[mx.array, mx.array]:
    """The number of accepted `draft_ids` [k], and the next token, both greedy by `logits` [k + 1, V]."""
    best = argmax(logits)
    accepted = count_leading(best[:-1] == draft_ids)
    return accepted, best[accepted]


def verify_sampled(
    target_probs: mx.array,
    draft_probs: mx.array,
    draft_ids: mx.array,
    keys: tuple[mx.array | None, mx.array | None],
) -> tuple[mx.array, mx.array]:
    """The number of accepted `draft_ids` [k], and the next token, by rejection sampling.

    `draft_probs` [k, V]: the distributions that the drafts were sampled from; `target_probs` [k + 1, V]:
    those of the model. A draft is accepted with probability min(1, target / draft). The first rejected one
    is replaced by a sample from max(0, target - draft), normalised. The result is distributed as
    `target_probs`.
    """
    u = mx.random.uniform(shape=draft_ids.shape, key=keys[0])
    accepted = count_accepted(target_probs, draft_probs, draft_ids, u)
    residual = residual_probs(target_probs, draft_probs, accepted)
    return accepted, mx.random.categorical(mx.log(residual), key=keys[1])
