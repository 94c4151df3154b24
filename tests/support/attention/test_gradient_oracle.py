"""The gradient's oracle agrees with finite differences of the oracle of attention."""

import numpy as np
import pytest

from ..finite_differences import gradient
from . import oracle
from .gradient_oracle import gradients

OPTIONS = {
    "plain": {},
    "causal window": {"causal": True, "window": 3},
    "softcap": {"softcap": 1.5, "scale": 0.9},
    "bool mask": {"mask": np.random.default_rng(1).random((4, 6)) < 0.5},
    "float mask": {"mask": np.random.default_rng(1).standard_normal((2, 1, 4, 6))},
    "lengths": {
        "causal": True,
        "q_lens": np.array([4, 2]),
        "kv_start": np.array([0, 2]),
        "kv_lens": np.array([6, 3]),
    },
    "hidden rows": {"causal": True, "kv_lens": np.array([2, 0])},
}


@pytest.mark.parametrize("sinks", [None, np.array([0.3, -1.0, 2.0, 0.0])], ids=["no sinks", "sinks"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_are_finite_differences(options, sinks):
    rng = np.random.default_rng(0)
    q, d_out = rng.standard_normal((2, 2, 4, 4, 3))
    k, v = rng.standard_normal((2, 2, 2, 6, 3))
    d_lse = rng.standard_normal((2, 4, 4))
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)

    def loss(q, k, v, sinks=None):
        out, lse = oracle.attention(q, k, v, sinks=sinks, **options)
        return float((out * d_out).sum() + (np.where(lse == -np.inf, 0, lse) * d_lse).sum())

    got = gradients(q, k, v, d_out, d_lse, sinks=sinks, **options)
    for one, want in zip(got, gradient(loss, *inputs), strict=False):
        np.testing.assert_allclose(one, want, rtol=0, atol=1e-8)
