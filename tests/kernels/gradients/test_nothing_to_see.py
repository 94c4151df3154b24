"""Rows without keys and sizes of zero: zeros where nothing is seen, exact gradients everywhere else."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention, flash_attention_varlen

from ...support.attention.gradients import check_gradients
from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal, qkv
from ...support.tolerance import same_bits

L, S = 100, 37
EVERY_THIRD = (mx.arange(L) % 3 == 0)[:, None]

# The rows [L] that see nothing, and what hides their keys.
HIDDEN = {
    "causal": (mx.arange(L) < L - S, {"causal": True}),
    "window": (mx.arange(L) < L - S, {"window": (2, 0)}),
    "bool mask": (EVERY_THIRD[:, 0], {"mask": mx.broadcast_to(~EVERY_THIRD, (L, S))}),
    "bool mask of rows": (EVERY_THIRD[:, 0], {"mask": ~EVERY_THIRD}),
    "mask of -inf": (EVERY_THIRD[:, 0], {"mask": mx.where(EVERY_THIRD, -mx.inf, normal(L, S, seed=9))}),
    "no keys": (mx.arange(L) >= 0, {"kv_lens": lengths(0, 0)}),
    "no queries": (mx.arange(L) >= 0, {"q_lens": lengths(0, 0)}),
    "few queries": (mx.arange(L) >= 7, {"q_lens": lengths(7, 7)}),
    "causal window and mask": (
        (mx.arange(L) < L - S) | EVERY_THIRD[:, 0],
        {"causal": True, "window": 9, "mask": mx.broadcast_to(~EVERY_THIRD, (L, S))},
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(
    "sinks",
    [None, normal(4, seed=5), mx.array([0.0, -mx.inf, 1.0, -mx.inf])],
    ids=["no sinks", "sinks", "some of -inf"],
)
@pytest.mark.parametrize("why", HIDDEN)
def test_a_row_without_keys_has_no_gradient(why, sinks, dtype):
    rows, options = HIDDEN[why]
    dq, dk, dv, *_ = check_gradients(*qkv(L=L, S=S, dtype=dtype), sinks=sinks, **options)
    assert not mx.where(rows[:, None], dq, 0).any()
    assert all(mx.isfinite(x).all() for x in (dq, dk, dv))
    assert dv.any() == (not rows.all())


TRANSFORMS = {
    "plain": lambda f: f,
    "compiled": mx.compile,
    "shapeless": lambda f: mx.compile(f, shapeless=True),
    "mapped": lambda f: lambda *x: [y[0] for y in mx.vmap(f)(*(one[None] for one in x))],
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("size", [(2, 5, 0), (2, 0, 5), (0, 5, 5), (2, 0, 0), (0, 0, 0)], ids=str)
def test_sizes_of_zero(size, transform):
    batch, rows, keys = size
    inputs = qkv(batch=(batch,), L=rows, S=keys)

    def attend(q, k, v):
        return list(flash_attention(q, k, v, causal=True, return_lse=True, sinks=mx.ones(4)))

    def gradients(q, k, v):
        return mx.vjp(attend, [q, k, v], [mx.ones(q.shape), mx.ones(q.shape[:-1])])[1]

    got = transform(gradients)(*inputs)
    assert [x.shape for x in got] == [x.shape for x in inputs]
    assert same_bits([mx.zeros(x.shape) for x in inputs], got)


@pytest.mark.parametrize(
    ("q_begins", "k_begins"),
    [([0], [0]), ([0, 0], [0, 7]), ([0, 7], [0, 0]), ([0, 0, 0], [0, 0, 0])],
    ids=str,
)
def test_packed_sizes_of_zero(q_begins, k_begins):
    inputs = (normal(q_begins[-1], 4, 16), *(normal(k_begins[-1], 2, 16, seed=i) for i in (1, 2)))
    attend = lambda *x: flash_attention_varlen(*x, q_begins, k_begins, causal=True)  # noqa: E731
    got = mx.grad(lambda *x: attend(*x).sum(), argnums=(0, 1, 2))(*inputs)
    assert same_bits([mx.zeros(x.shape) for x in inputs], got)
    assert not attend(*inputs).any()
