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
from ..sampling.select import argmax
from .protocols import CachedModel
from .tokens import Sequenced, refuse_nan, scores_of_chosen, token_id


def speculative_tokens(
    draft_model: CachedModel,
    model: CachedModel,
    prompt: list[int],
    sampling: Sampling,
    limit: int,
    *,
    drafts: int,
    prefill_step: int,
) -> Iterator[int]:
    """At most `limit` tokens of `model`, up to `drafts` + 1 in each of its passes."""
    keys = random_keys(sampling.seed)
    with closing(Sequenced(model)) as target, closing(Sequenced(draft_model)) as draft:
        logits = target.prefill(prompt, prefill_step)
        vocabulary = logits.shape[-1]
        first = draw(logits, sampling, next(keys))
        refuse_nan([scores_of_chosen(logits, first).item()])
        newest = token_id(first)
        yield newest
        unread = [*prompt, newest]  # by the draft model; the target model has read all but the newest
        left = limit - 1
        while left > 0:
            count = min(drafts, left - 1)
            guesses: list[mx.array] = []
            chances = [mx.zeros((0, vocabulary))]
            for _ in range(count):
                logits = draft.read_on(guesses[-1]) if guesses else draft.prefill(unread, prefill_step)
                logits = fit_vocabulary(logits, vocabulary)
                chances.append(probabilities(logits, sampling))
                guesses.append(draw(logits, sampling, next(keys)))

            logits = target.read(mx.concatenate([mx.array([newest]), *guesses]))
            guessed = mx.concatenate([mx.zeros(0, mx.uint32), *guesses])
            if sampling.temp == 0:
                scores = logits
                accepted, token = verify_greedy(logits, guessed)
            else:
                scores = probabilities(logits, sampling)
                accepted, token = verify_sampled(
                    scores,
                    mx.concatenate(chances),
                    guessed,
                    (next(keys), next(keys)),
                )
            score = scores[accepted, token]
            mx.eval(accepted, token, score)
            refuse_nan([score.item()])
            agreed, newest = token_id(accepted), token_id(token)
            target.rewind(count - agreed)
            tokens = [*map(token_id, guesses[:agreed]), newest]
            if count and agreed == count:  # the draft model has not read its last draft
                unread = tokens[-2:]
            else:
                draft.rewind(max(count - 1 - agreed, 0))
                unread = [newest]
            left -= len(tokens)
            yield from tokens


def verify_greedy(logits: mx.array, guesses: mx.array) -> tuple[mx.array, mx.array]:
    """The number of accepted `guesses` [k], and the next token, both greedy by `logits` [k + 1, V]."""
    best = argmax(logits)
    accepted = count_leading(best[:-1] == guesses)
    return accepted, best[accepted]


def verify_sampled(
    wanted: mx.array,
    drafted: mx.array,
    guesses: mx.array,
    keys: tuple[mx.array | None, mx.array | None],
) -> tuple[mx.array, mx.array]:
    """The number of accepted `guesses` [k], and the next token, by rejection sampling.

    `drafted` [k, V] are the probabilities that the guesses were drawn with, `wanted` [k + 1, V] those of
    the model. A guess is accepted with probability min(1, wanted / drafted). The first rejected one is
    replaced by a draw from max(0, wanted - drafted), normalised. The result is distributed as `wanted`.
    """
    chosen = guesses[:, None]
    of_wanted = mx.take_along_axis(wanted[:-1], chosen, axis=-1).squeeze(-1)
    of_drafted = mx.take_along_axis(drafted, chosen, axis=-1).squeeze(-1)
    luck = mx.random.uniform(shape=guesses.shape, key=keys[0])
    accepted = count_leading(luck * of_drafted < of_wanted)
    # After the last guess nothing was drafted, so the next token is drawn from `wanted` itself.
    drafted = mx.concatenate([drafted, mx.zeros((1, wanted.shape[-1]))])
    rest = mx.maximum(wanted[accepted] - drafted[accepted], 0)
    rest = mx.where(rest.sum() > 0, rest, wanted[accepted])  # the rows are equal up to rounding
    return accepted, mx.random.categorical(mx.log(rest), key=keys[1])


def count_leading(flags: mx.array) -> mx.array:
    """The number of True in `flags` [k] before the first False."""
    return mx.cumprod(flags.astype(mx.int32)).sum()


def fit_vocabulary(logits: mx.array, size: int) -> mx.array:
    """`logits` [L, V'] cut or padded with -inf to `size`: models may differ in padding rows."""
    if logits.shape[-1] >= size:
        return logits[:, :size]
    missing = mx.full((logits.shape[0], size - logits.shape[-1]), -mx.inf, logits.dtype)
    return mx.concatenate([logits, missing], axis=-1)
