"""Speculative decoding: a small model guesses some tokens, the large one checks them in a single pass.

What comes out is what the large model alone would give: its greedy tokens, or, with a temperature, tokens of
exactly its distribution, because a guess that it likes less than the draft did is dropped in proportion. That
is meant within rounding: a pass over several tokens adds up in another order than one over a single token.
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
    """At most `limit` tokens of `model`, up to `drafts` + 1 for each time that it runs."""
    keys = random_keys(sampling.seed)
    with closing(Sequenced(model)) as target, closing(Sequenced(draft_model)) as draft:
        logits = target.prefill(prompt, prefill_step)
        vocabulary = logits.shape[-1]
        first = draw(logits, sampling, next(keys))
        refuse_nan([scores_of_chosen(logits, first).item()])
        newest = token_id(first)
        yield newest
        unread = [*prompt, newest]  # by the draft; the target has always read all but the newest
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
                accepted, token = check_greedy(logits, guessed)
            else:
                scores = probabilities(logits, sampling)
                accepted, token = check_sampled(
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
            if count and agreed == count:  # the draft has not read its own last guess
                unread = tokens[-2:]
            else:
                draft.rewind(max(count - 1 - agreed, 0))
                unread = [newest]
            left -= len(tokens)
            yield from tokens


def check_greedy(logits: mx.array, guesses: mx.array) -> tuple[mx.array, mx.array]:
    """How many `guesses` [k] the model would have made, and its own token behind them: logits [k + 1, V]."""
    best = argmax(logits)
    accepted = count_leading(best[:-1] == guesses)
    return accepted, best[accepted]


def check_sampled(
    wanted: mx.array,
    drafted: mx.array,
    guesses: mx.array,
    keys: tuple[mx.array | None, mx.array | None],
) -> tuple[mx.array, mx.array]:
    """How many `guesses` [k], draws from `drafted` [k, V], stay, and the next token: `wanted` [k + 1, V].

    A guess stays with probability min(1, wanted / drafted). The first one that does not is replaced by a draw
    from what the draft gave too little to, max(0, wanted - drafted). Together that is a draw from `wanted`.
    """
    chosen = guesses[:, None]
    of_wanted = mx.take_along_axis(wanted[:-1], chosen, axis=-1).squeeze(-1)
    of_drafted = mx.take_along_axis(drafted, chosen, axis=-1).squeeze(-1)
    luck = mx.random.uniform(shape=guesses.shape, key=keys[0])
    accepted = count_leading(luck * of_drafted < of_wanted)
    # Behind the last guess nothing was drafted, and the rest is all that is wanted.
    drafted = mx.concatenate([drafted, mx.zeros((1, wanted.shape[-1]))])
    rest = mx.maximum(wanted[accepted] - drafted[accepted], 0)
    rest = mx.where(rest.sum() > 0, rest, wanted[accepted])  # two equal rows, one of them rounded
    return accepted, mx.random.categorical(mx.log(rest), key=keys[1])


def count_leading(flags: mx.array) -> mx.array:
    """The number of True in `flags` [k] before the first False."""
    return mx.cumprod(flags.astype(mx.int32)).sum()


def fit_vocabulary(logits: mx.array, size: int) -> mx.array:
    """`logits` [L, V'] for `size` tokens: models of one vocabulary differ in the rows added as padding."""
    if logits.shape[-1] >= size:
        return logits[:, :size]
    missing = mx.full((logits.shape[0], size - logits.shape[-1]), -mx.inf, logits.dtype)
    return mx.concatenate([logits, missing], axis=-1)
