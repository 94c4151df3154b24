"""Gradients of packed sequences: the bits of each sequence alone, and nothing across their borders."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention, flash_attention_varlen

from ...support.cases import DTYPE_IDS, DTYPES, lengths, normal
from ...support.native import last_run
from ...support.tolerance import GRADIENT_FLOOR, same_bits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

QUERIES, KEYS = [0, 5, 5, 75, 76, 276], [0, 9, 20, 90, 190, 390]
OPTIONS = {"causal": True, "window": 80, "softcap": 4.0}


def packed(dtype):
    """query, key, value and the cotangents of output and log-sum-exp."""
    q, k, v = normal(276, 4, 32, dtype=dtype, seed=1), *normal(2, 390, 2, 32, dtype=dtype, seed=2)
    return q, k, v, normal(*q.shape, dtype=dtype, seed=3), normal(*q.shape[:-1], seed=4)


def gradients(inputs, cotangents, function, **options):
    def both(q, k, v, sinks):
        return list(function(q, k, v, sinks=sinks, return_lse=True, **OPTIONS, **options))

    return mx.vjp(both, list(inputs), list(cotangents))[1]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_a_sequence_has_the_bits_that_it_has_alone(dtype):
    q, k, v, d_out, d_lse = packed(dtype)
    sinks = normal(4, seed=5)

    def varlen(q, k, v, **options):
        return flash_attention_varlen(q, k, v, lengths(*QUERIES), lengths(*KEYS), **options)

    together = gradients((q, k, v, sinks), (d_out, d_lse), varlen)
    mx.eval(together)
    assert last_run()["path"] == "cpu.backward"
    sum_of_sinks = mx.zeros(4)
    for i in range(5):
        rows, keys = slice(*QUERIES[i : i + 2]), slice(*KEYS[i : i + 2])
        one = [x.swapaxes(0, 1) for x in (q[rows], k[keys], v[keys], d_out[rows], d_lse[rows])]
        alone = gradients((*one[:3], sinks), one[3:], flash_attention)
        want = [x.swapaxes(0, 1) for x in alone[:3]]
        assert same_bits(want, [x[part] for x, part in zip(together, (rows, keys, keys), strict=False)])
        sum_of_sinks = sum_of_sinks + alone[3]
    error = mx.abs(together[3] - sum_of_sinks).max()
    assert error <= GRADIENT_FLOOR[mx.float32] * mx.abs(sum_of_sinks).max()


def test_slots_that_no_sequence_uses_have_no_gradient():
    q, k, v, d_out, d_lse = packed(mx.float32)
    used = {"kv_start": [2, 0, 10, 0, 100], "kv_lens": [7, 11, 50, 0, 90]}
    unused = mx.ones(390, dtype=mx.bool_)
    for first, start, count in zip(KEYS[:-1], *used.values(), strict=True):
        unused[first + start : first + start + count] = False
    dirty = [mx.where(unused[:, None, None], mx.nan, x) for x in (k, v)]

    def varlen(q, k, v, **options):
        limits = {name: lengths(*values) for name, values in used.items()}
        return flash_attention_varlen(q, k, v, lengths(*QUERIES), lengths(*KEYS), **limits, **options)

    got = gradients((q, *dirty, mx.zeros(4)), (d_out, d_lse), varlen)
    assert same_bits(gradients((q, k, v, mx.zeros(4)), (d_out, d_lse), varlen), got)
    for grad in got[1:3]:
        assert not mx.where(unused[:, None, None], grad, 0).any()
        assert grad.any()
