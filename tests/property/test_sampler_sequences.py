"""Samplers under random sequences of calls: a draw depends only on the seed and the number of draws."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule

from tiny_llm.sampler import make_sampler
from tiny_llm.sampling.draw import draw, random_key
from tiny_llm.sampling.params import Sampling

from ..support.generation import sampling as oracle

ROWS = st.lists(st.lists(st.integers(-20, 20), min_size=7, max_size=7), min_size=1, max_size=3)
FILTERS = st.fixed_dictionaries(
    {
        "temp": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "top_p": st.none() | st.sampled_from([0.111, 0.555, 0.888]),
        "top_k": st.none() | st.integers(0, 8),
    }
)


class SamplerMachine(RuleBasedStateMachine):
    """Several samplers used in turns, compared with draws by index."""

    samplers = Bundle("samplers")

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, int] = {}

    @rule(target=samplers, seed=st.integers(0, 3), filters=FILTERS)
    def open(self, seed: int, filters: dict[str, Any]) -> tuple[Any, Sampling]:
        sampler = make_sampler(**filters, seed=seed)
        self.calls[sampler] = 0
        return sampler, Sampling(**filters, seed=seed)

    @rule(opened=samplers, rows=ROWS)
    def sample(self, opened: tuple[Any, Sampling], rows: list[list[int]]) -> None:
        sampler, sampling = opened
        logits = mx.array(rows, dtype=mx.float32) / 4
        before, state = np.array(logits), mx.random.state[0].tolist()
        ids = sampler(logits)
        key = random_key(sampling.seed, self.calls[sampler])
        self.calls[sampler] += 1
        assert mx.array_equal(ids, draw(logits, sampling, key))
        assert ids.shape == (len(rows),)
        assert np.array_equal(np.array(logits), before)
        assert mx.random.state[0].tolist() == state
        for row, chosen in zip(before, ids.tolist(), strict=True):
            if len(set(row)) == len(row):  # the order of equal tokens is undefined
                chances = oracle.probabilities(row, sampling.temp, sampling.top_p, sampling.top_k)
                assert chances[chosen] > 0

    @rule()
    def let_others_draw(self) -> None:
        """The global random state of MLX advances without any effect on seeded samplers."""
        mx.eval(mx.random.uniform(shape=(2,)))


TestSamplers = SamplerMachine.TestCase
TestSamplers.settings = settings(max_examples=60, stateful_step_count=20)
