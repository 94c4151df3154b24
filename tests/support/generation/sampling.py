"""The probabilities of a sampler in float64, and a test whether draws have given probabilities."""

import math

import mlx.core as mx
import numpy as np

# A fair sampler exceeds this many standard deviations once in 10^7 times.
SIGMAS = 5.2


def probabilities(logits, temp=1.0, top_p=None, top_k=None, min_p=None) -> np.ndarray:
    """The probability of each token of one row of logits [V], by the rules of `Sampling`."""
    scores = np.asarray(logits, np.float64)
    p = np.exp(scores - scores.max())
    p /= p.sum()
    kept: list[int] = []
    mass = 0.0
    for rank, token in enumerate(np.argsort(-p, kind="stable")):
        too_many = bool(top_k) and rank >= top_k
        enough = top_p is not None and 0 < top_p < 1 and rank > 0 and mass >= top_p
        too_rare = bool(min_p) and p[token] < min_p * p.max()
        if too_many or enough or too_rare:
            break
        kept.append(token)
        mass += p[token]
    probs = np.zeros_like(p)
    if temp == 0:
        probs[kept[0]] = 1
    else:
        probs[kept] = np.exp((scores[kept] - scores.max()) / temp)
    return probs / probs.sum()


def log(p) -> mx.array:
    """Log probabilities as float32."""
    return mx.log(mx.array(p, dtype=mx.float32))


def assert_drawn_from(ids: np.ndarray | mx.array, probs: np.ndarray) -> None:
    """Pearson's chi-square test of the draws `ids`, with a limit from the degrees of freedom."""
    ids = np.array(ids).reshape(-1)
    counts = np.bincount(ids, minlength=len(probs))
    assert len(counts) == len(probs), "a token outside of the vocabulary was drawn"
    assert counts[probs == 0].sum() == 0, "a token of probability 0 was drawn"
    counts, expected = counts[probs > 0], ids.size * probs[probs > 0]
    assert expected.min() >= 10, (
        f"{ids.size} draws are too few for a token that is expected {expected.min()} times"
    )
    freedom = len(expected) - 1
    if freedom:
        statistic = ((counts - expected) ** 2 / expected).sum()
        # Wilson and Hilferty: the cube root of chi-square over its freedom is nearly normal.
        spread = 2 / (9 * freedom)
        limit = freedom * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3
        assert statistic < limit, f"chi-square {statistic:.1f} of {freedom} degrees, limit {limit:.1f}"
