"""`nn.Attention`: stores the new tokens, then attends to packed tokens or to pages."""

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

from tiny_llm.attention import flash_attention
from tiny_llm.nn import Attention, DecodeMetadata, PrefillMetadata

from ..support.cases import DTYPE_IDS, DTYPES, normal
from ..support.refusal import refused
from ..support.tolerance import FLOOR, to_float64

HEADS, KV_HEADS, D, PAGE = 4, 2, 32, 4
QKV_HEADS = (HEADS, KV_HEADS, KV_HEADS)
TABLES = mx.array([[5, 1, 3, -1], [2, 0, -1, -1]])


def slots(sequence: int, tokens: range) -> list[int]:
    """Where the tokens of a sequence lie in the pages of TABLES."""
    pages = TABLES[sequence].tolist()
    return [pages[t // PAGE] * PAGE + t % PAGE for t in tokens]


class Server:
    """The tokens of both sequences, and a layer with empty pages."""

    def __init__(self, dtype: mx.Dtype = mx.float32, **options):
        self.tokens = [
            [normal(12, heads, D, dtype=dtype, seed=3 * s + i) for i, heads in enumerate(QKV_HEADS)]
            for s in range(2)
        ]
        self.layer = Attention(HEADS, D, num_kv_heads=KV_HEADS, **options)
        shape = (6, PAGE, KV_HEADS, D)
        self.layer.k_cache, self.layer.v_cache = mx.full(shape, mx.nan, dtype), mx.full(shape, mx.nan, dtype)

    def rows(self, *parts: range) -> list[mx.array]:
        """q, k and v of these tokens of the sequences, packed."""
        return [
            mx.concatenate([self.tokens[s][i][part.start : part.stop] for s, part in enumerate(parts)])
            for i in range(3)
        ]

    def slots(self, *parts: range) -> mx.array:
        return mx.array([slot for s, part in enumerate(parts) for slot in slots(s, part)])

    def expected(self, *parts: range, scale: float = D**-0.5) -> mx.array:
        """Dense causal attention of these tokens to all before, sequence by sequence."""
        out = []
        for s, part in enumerate(parts):
            query, key, value = (x[: part.stop].swapaxes(0, 1)[None] for x in self.tokens[s])
            query = query[:, :, part.start :]
            out.append(flash_attention(query, key, value, scale, causal=True)[0].swapaxes(0, 1))
        return mx.concatenate(out)


def assert_equal(out: mx.array, want: mx.array) -> None:
    assert out.dtype == want.dtype
    np.testing.assert_allclose(to_float64(out), to_float64(want), atol=2 * FLOOR[want.dtype], rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_prompts_then_a_second_part_then_single_tokens(dtype):
    server = Server(dtype, block_size=PAGE)
    first = (range(7), range(3))
    out = server.layer(*server.rows(*first), PrefillMetadata([0, 7, 10], slot_mapping=server.slots(*first)))
    assert_equal(out, server.expected(*first))
    # The second part sees the first only in the pages: k and v have the new tokens alone.
    second = (range(7, 9), range(3, 6))
    metadata = PrefillMetadata([0, 2, 5], [0, 9, 15], server.slots(*second), TABLES)
    assert_equal(server.layer(*server.rows(*second), metadata), server.expected(*second))
    last = (range(9, 10), range(6, 7))
    step = DecodeMetadata(mx.array([10, 7]), TABLES, server.slots(*last))
    assert_equal(server.layer(*server.rows(*last), step), server.expected(*last))


def test_without_slots_nothing_is_stored_and_no_pages_are_needed():
    layer = Attention(HEADS, D, num_kv_heads=KV_HEADS)
    server = Server()
    parts = (range(7), range(3))
    assert_equal(layer(*server.rows(*parts), PrefillMetadata(mx.array([0, 7, 10]))), server.expected(*parts))
    assert layer.k_cache is None


def test_the_scale_multiplies_that_of_the_head_size():
    server = Server(scale=3.0)
    parts = (range(7), range(3))
    assert server.layer.scale == 3.0 * D**-0.5
    out = server.layer(*server.rows(*parts), PrefillMetadata([0, 7, 10]))
    assert_equal(out, server.expected(*parts, scale=3.0 * D**-0.5))


def test_caches_are_no_parameters_of_a_model():
    class Block(mlx.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Server().layer

    assert Block().parameters() == {}


def test_heads_of_keys_default_to_the_heads_of_queries():
    assert Attention(HEADS, D).num_kv_heads == HEADS


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("num_heads", {"num_heads": 0}),
        ("head_dim", {"head_dim": -1}),
        ("num_kv_heads", {"num_kv_heads": 3}),
        ("block_size", {"block_size": 0}),
    ],
)
def test_bad_sizes_of_a_layer(argument, wrong):
    with refused(argument, function="Attention"):
        Attention(**({"num_heads": HEADS, "head_dim": D} | wrong))


def test_a_wrong_page_size_stores_nothing():
    server = Server(block_size=8)
    parts = (range(7), range(3))
    with refused("block_size", function="Attention"):
        server.layer(*server.rows(*parts), PrefillMetadata([0, 7, 10], slot_mapping=server.slots(*parts)))
    assert np.isnan(to_float64(server.layer.k_cache)).all()


def test_pages_are_needed_where_they_are_read():
    server = Server()
    with refused("block_tables", function="PrefillMetadata"):
        PrefillMetadata([0, 2, 5], [0, 9, 15])
    layer = Attention(HEADS, D, num_kv_heads=KV_HEADS)
    rows = server.rows(range(1), range(1))
    with refused("k_cache", function="Attention"):
        layer(*rows, DecodeMetadata(mx.array([1, 1]), TABLES))
    with refused("k", function="Attention"):
        server.layer(rows[0], rows[1][:1], rows[2], DecodeMetadata(mx.array([1, 1]), TABLES))
    with refused("metadata", TypeError, "Attention"):
        server.layer(*rows, None)


def test_equal_starts_in_another_container_need_no_pages():
    assert PrefillMetadata([0, 3, 8], (0, 3, 8)).context_lens is None
    assert PrefillMetadata(mx.array([0, 3, 8]), [0, 3, 8]).context_lens is None
