"""The options of paged attention that choose how it is computed: none is ignored."""

import mlx.core as mx
import pytest

from tiny_llm.attention import explain, flash_attention, flash_attention_varlen, paged_attention

from ...support.attention.packed import cumulative
from ...support.attention.pages import paged
from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.native import last_run
from ...support.refusal import refused
from ...support.tolerance import FLOOR, assert_close, same_bits, to_float64


class Row:
    """The queries and keys of one sequence, and what batch-invariant attention gives for it alone."""

    def __init__(self, n_q, n_k, dtype):
        self.n_q, self.n_k, self.dtype = n_q, n_k, dtype
        self.query = normal(n_q, 4, 64, dtype=dtype)
        self.key, self.value = normal(2, 1, 2, n_k, 64, dtype=dtype, seed=1)
        self.alone = self.among([], [])

    def pages(self, others, page_size, seed):
        """Its pages, and contexts of other sequences in any pages of the same pool."""
        own = paged(self.key, self.value, [self.n_k], page_size, seed=seed)
        used = own.block_table[0, : -(-self.n_k // page_size)]
        width = max(len(used), -(-max([0, *others]) // page_size))
        shared = mx.concatenate([used] * (width // len(used) + 1))[:width]
        table = mx.broadcast_to(shared, (len(others) + 1, width))
        return own._replace(block_table=table, context_lens=mx.array([*others, self.n_k]))

    def among(self, n_qs, n_ks, *, page_size=16, seed=0):
        """Its rows when it is the last of several packed sequences."""
        query = mx.concatenate([normal(sum(n_qs), 4, 64, dtype=self.dtype, seed=3), self.query])
        rows = cumulative([*n_qs, self.n_q])
        options = {"causal": True, "batch_invariant": True, "return_lse": True}
        out = paged_attention(query, *self.pages(n_ks, page_size, seed), cu_seqlens_q=rows, **options)
        return [x[-self.n_q :] for x in out]

    def padded(self, rows):
        """In a batch with another sequence, with padding after its own rows."""
        heads_first = self.query.swapaxes(0, 1)[None]
        query = mx.pad(heads_first, [(0, 0), (0, 0), (0, rows - self.n_q), (0, 0)])
        other = normal(1, 4, rows, 64, dtype=self.dtype, seed=4)
        out = paged_attention(
            mx.concatenate([other, query]), *self.pages([40], 16, 0), causal=True,
            q_lens=[rows, self.n_q], batch_invariant=True, return_lse=True,
        )  # fmt: skip
        return [x[1, :, : self.n_q].swapaxes(0, 1) for x in out]


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1300), (5, 1300), (33, 131)])
def test_the_bits_of_a_row_do_not_depend_on_its_batch(n_q, n_k, dtype):
    """Alone, among 7 and 64 sequences, in other pages, of other sizes, padded, and over dense keys."""
    row = Row(n_q, n_k, dtype)
    assert same_bits(row.alone, row.among([1, 5, 0, 33, 1], [40, 1100, 17, 300, 0]))
    assert same_bits(row.alone, row.among([1] * 63, [17] * 63))
    for page_size in (7, 256):
        assert same_bits(row.alone, row.among([1], [40], page_size=page_size, seed=5))
    assert same_bits(row.alone, row.padded(n_q))
    assert same_bits(row.alone, row.padded(n_q + 9))
    dense = flash_attention(
        row.query.swapaxes(0, 1)[None], row.key, row.value, causal=True, batch_invariant=True, return_lse=True
    )
    assert same_bits(row.alone, [x[0].swapaxes(0, 1) for x in dense])


def call(L=33):
    key, value = normal(2, 2, 2, 300, 32)
    return normal(2 * L, 4, 32, seed=1), paged(key, value, [300, 131], 16), [0, L, 2 * L]


@pytest.mark.parametrize("L", [1, 33])
def test_explain_states_what_is_guaranteed(L):
    query, pages, rows = call(L)
    plan = explain(
        paged_attention, query, *pages, cu_seqlens_q=rows, batch_invariant=True, deterministic=True
    )
    assert (plan.batch_invariant, plan.deterministic, plan.fused) == (True, True, True)


def test_the_order_of_loops_can_be_chosen():
    query, pages, rows = call()
    want = paged_attention(query, *pages, cu_seqlens_q=rows, causal=True)
    mx.eval(want)
    got = paged_attention(query, *pages, cu_seqlens_q=rows, causal=True, schedule="v1")
    assert_close(got, to_float64(want), floor=FLOOR[mx.float32])
    plan = explain(paged_attention, query, *pages, cu_seqlens_q=rows, causal=True, schedule="v1")
    assert plan.schedule == "v1"
    assert plan.tiles_visited == last_run()["tiles_visited"]


@pytest.mark.parametrize(
    ("argument", "error"),
    [("schedule", ValueError), ("on_fallback", ValueError), ("deterministic", TypeError),
     ("batch_invariant", TypeError), ("stream", TypeError)],
)  # fmt: skip
def test_wrong_options_are_refused(argument, error):
    query, pages, rows = call(1)
    with refused(argument, error, "paged_attention"):
        paged_attention(query, *pages, cu_seqlens_q=rows, **{argument: "maybe"})
    with refused(argument, error, "paged_attention"):
        explain(paged_attention, query, *pages, cu_seqlens_q=rows, **{argument: "maybe"})


@pytest.mark.parametrize("argument", ["k_quant", "v_quant"])
def test_quantized_pages_are_not_implemented(argument):
    query, pages, rows = call(1)
    formats = mx.zeros((1,)), mx.zeros((1,)), 4, 64
    with pytest.raises(NotImplementedError, match=rf"^paged_attention: {argument}: .*mx.dequantize"):
        paged_attention(query, *pages, cu_seqlens_q=rows, **{argument: formats})
    with pytest.raises(NotImplementedError, match=rf"^flash_attention_varlen: {argument}: .*mx.dequantize"):
        flash_attention_varlen(query, query, query, rows, **{argument: formats})
