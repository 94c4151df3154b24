"""Sequences of different lengths in one batch give the same results as alone, whatever the padding holds."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention

from ...support.attention.check import check
from ...support.cases import DTYPE_IDS, DTYPES, lengths, qkv

L, S = 70, 131
# (q_len, kv_start, kv_len) of each sequence: longer than a tile, shorter, one, none.
SEQUENCES = ((70, 0, 131), (33, 7, 65), (1, 100, 31), (0, 0, 131), (70, 131, 0), (5, 60, 1), (64, 64, 64))


def ragged(dtype=mx.float32):
    q, k, v = qkv(batch=(len(SEQUENCES),), L=L, S=S, dtype=dtype)
    q_lens, kv_start, kv_lens = (lengths(*column) for column in zip(*SEQUENCES, strict=True))
    return (q, k, v), {"q_lens": q_lens, "kv_start": kv_start, "kv_lens": kv_lens}


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 9}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_ragged_batch(dtype, options):
    inputs, ragged_lengths = ragged(dtype)
    check(*inputs, **ragged_lengths, **options)


def test_int64_lengths():
    inputs, ragged_lengths = ragged()
    check(*inputs, causal=True, **{name: x.astype(mx.int64) for name, x in ragged_lengths.items()})


@pytest.mark.parametrize("which", ["q_lens", "kv_start", "kv_lens"])
def test_each_length_alone(which):
    check(*qkv(batch=(3,), L=L, S=S), causal=True, **{which: lengths(70, 1, 33)})


def test_strided_lengths():
    inputs, ragged_lengths = ragged()
    check(*inputs, causal=True, **{name: mx.repeat(x, 2)[::2] for name, x in ragged_lengths.items()})


def test_lengths_of_a_batch_with_two_axes():
    grid = mx.array([[131, 65, 0], [1, 64, 33]])
    check(*qkv(batch=(2, 3), L=33, S=S), causal=True, kv_lens=grid)


def test_a_sequence_without_a_batch_axis():
    check(*qkv(batch=(), L=33, S=65), causal=True, kv_lens=mx.array(40), q_lens=mx.array(12))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_each_sequence_gives_the_same_as_alone(causal):
    (q, k, v), ragged_lengths = ragged()
    together = flash_attention(q, k, v, causal=causal, **ragged_lengths)
    for b, (n_q, start, n_k) in enumerate(SEQUENCES):
        keys = slice(start, start + n_k)
        alone = flash_attention(q[b, :, :n_q], k[b, :, keys], v[b, :, keys], causal=causal)
        assert mx.array_equal(together[b, :, :n_q], alone)
        assert not together[b, :, n_q:].any()


def test_a_left_padded_batch_needs_no_mask():
    """Both prompts end at the last slot, the layout of batched generation."""
    q, k, v = qkv(L=65, S=65)
    start = lengths(40, 0)
    check(q, k, v, causal=True, kv_start=start)
    together = flash_attention(q, k, v, causal=True, kv_start=start)
    alone = flash_attention(q[:1, :, 40:], k[:1, :, 40:], v[:1, :, 40:], causal=True)
    assert mx.array_equal(together[:1, :, 40:], alone)
    assert not together[0, :, :40].any()


def test_decoding_from_caches_of_different_length():
    want = check(
        *qkv(batch=(3,), heads=8, kv_heads=2, L=1, S=4096), kv_lens=lengths(4096, 1, 700), causal=True
    )
    assert want.out.any(axis=(1, 2, 3)).all()
