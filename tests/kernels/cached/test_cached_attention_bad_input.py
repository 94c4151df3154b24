"""Wrong arguments are refused by name, before any cache is written."""

import mlx.core as mx
import pytest

from tiny_llm.positional_encoding import RotationTable
from tiny_llm.runtime.extension import load_extension

from ...support.cases import normal
from ...support.refusal import case_id, refused

cached_attention = load_extension().cached_attention
B, L, HEADS, KV_HEADS, SIZE = 2, 3, 4, 2, 16
CAPACITY, POSITIONS = 20, 40
TABLE = mx.zeros((POSITIONS, SIZE // 2))
KEYS = mx.zeros((1, KV_HEADS, CAPACITY, SIZE))
CACHE = (KEYS, KEYS, 5)
FITTING = {
    "query": mx.zeros((B, L, HEADS, SIZE)),
    "key": mx.zeros((B, L, KV_HEADS, SIZE)),
    "value": mx.zeros((B, L, KV_HEADS, SIZE)),
    "caches": [CACHE, None],
    "cos": TABLE,
    "sin": TABLE,
    "offset": 0,
}


def zeros(*shape, dtype=mx.float32):
    return mx.zeros(shape, dtype=dtype)


def tokens(L=L, heads=HEADS, kv_heads=KV_HEADS, size=SIZE, rows=B):
    key = zeros(rows, L, kv_heads, size)
    return {"query": zeros(rows, L, heads, size), "key": key, "value": key}


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": zeros()}),
        ("query", {"query": zeros(L, HEADS, SIZE)}),
        ("query", {"query": zeros(1, B, L, HEADS, SIZE)}),
        ("query", {"query": zeros(B, L, HEADS, SIZE, dtype=mx.int32)}),
        ("query", {"query": zeros(B, L, HEADS, SIZE, dtype=mx.complex64)}),
        ("key", {"key": zeros(B, L, KV_HEADS)}),
        ("key", {"key": zeros(B, L + 1, KV_HEADS, SIZE)}),
        ("key", {"key": zeros(B, L, KV_HEADS, SIZE + 2)}),
        ("key", {"key": zeros(B + 1, L, KV_HEADS, SIZE)}),
        ("key", {"key": zeros(B, L, KV_HEADS, SIZE, dtype=mx.float16)}),
        ("value", {"value": zeros(B, L, KV_HEADS + 1, SIZE)}),
        ("value", {"value": zeros(B, L, KV_HEADS, SIZE, dtype=mx.bfloat16)}),
        ("num_heads", tokens(heads=3)),
        ("num_heads", tokens(heads=0)),
        ("num_kv_heads", tokens(kv_heads=0)),
        ("query", tokens(size=0)),
        ("query", tokens(heads=2**16, size=2**16, rows=0)),
        ("cos", tokens(size=SIZE - 1)),
        ("cos", tokens(size=SIZE + 2)),
        ("cos", {"cos": TABLE.astype(mx.float16)}),
        ("cos", {"cos": TABLE[0]}),
        ("sin", {"sin": TABLE[1:]}),
        ("offset", {"cos": TABLE[: L - 1], "sin": TABLE[: L - 1]}),
        ("offset", {"offset": POSITIONS - L + 1}),
        ("offset", {"offset": [0, POSITIONS - L + 1]}),
        ("offset", {"offset": [-1, 0]}),
        ("offset", {"offset": -(2**70)}),
        ("offset", {"offset": 2**63 - 1}),
        ("offset", {"offset": [0]}),
        ("offset", {"offset": [0, 0, 0]}),
        ("offset", {"offset": []}),
        ("offset", {"offset": 1.0}),
        ("offset", {"offset": None}),
        ("offset", {"offset": "0"}),
        ("offset", {"offset": mx.array(0)}),
        ("caches", {"caches": []}),
        ("caches", {"caches": [CACHE]}),
        ("caches", {"caches": [CACHE, CACHE, CACHE]}),
        ("caches", {"caches": [None, None, None]}),
        ("caches", {"caches": [None, (zeros(2, *KEYS.shape[1:]),) * 2 + (5,)]}),
        ("caches", {"caches": [(mx.broadcast_to(KEYS, (2**31 - 1, *KEYS.shape[1:])),) * 2 + (5,)] * 3}),
        ("keys", {"caches": [(KEYS[0], KEYS, 5), None]}),
        ("keys", {"caches": [None, (KEYS[:, :1], KEYS[:, :1], 5)]}),
        ("keys", {"caches": [None, (KEYS[..., :8], KEYS, 5)]}),
        ("keys", {"caches": [(KEYS.astype(mx.float16), KEYS, 5), None]}),
        ("keys", {"caches": [(KEYS[:, :, : L - 1],) * 2 + (0,), None]}),
        ("keys", {"caches": [(KEYS[:, :, :0],) * 2 + (0,), None]}),
        ("values", {"caches": [(KEYS, KEYS[:, :, 1:], 5), None]}),
        ("values", {"caches": [(KEYS, KEYS[..., :8], 5), None]}),
        ("values", {"caches": [(KEYS, KEYS.astype(mx.float16), 5), None]}),
        *(
            ("length", {"caches": [(KEYS, KEYS, length), None]})
            for length in (-1, CAPACITY - L + 1, CAPACITY, 2**31, 2**40, 2**63 - 1, -(2**63))
        ),
        ("scale", {"scale": float("nan")}),
        ("scale", {"scale": float("inf")}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="cached_attention"):
        cached_attention(**(FITTING | wrong))


@pytest.mark.parametrize(
    "caches",
    [
        None,
        5,
        [5],
        [(KEYS, KEYS)],
        [(KEYS, KEYS, 5, 5)],
        [(KEYS, None, 5)],
        [(KEYS, KEYS, 5.0)],
        [(KEYS, KEYS, None)],
        [(KEYS, KEYS, 2**63)],
        [(KEYS, KEYS, mx.array([5, 5]))],
    ],
    ids=case_id,
)
def test_anything_but_a_cache_is_a_type_error(caches):
    with pytest.raises(TypeError, match=r"cached_attention\(\): incompatible"):
        cached_attention(**(FITTING | {"caches": caches}))


def test_the_last_places_of_a_cache_and_of_the_table_can_be_used():
    whole = KEYS, KEYS, CAPACITY - L
    out, caches = cached_attention(**(FITTING | {"caches": [whole, whole], "offset": POSITIONS - L}))
    mx.eval(out, caches)


def test_one_wrong_cache_leaves_the_others_unchanged():
    keys = normal(1, KV_HEADS, CAPACITY, SIZE)
    kept = mx.array(keys)
    with refused("length", function="cached_attention"):
        cached_attention(**(FITTING | {"caches": [(keys, keys, 5), (keys, keys, CAPACITY)]}))
    assert mx.array_equal(keys, kept)


@pytest.mark.parametrize(
    ("argument", "shapes"),
    [
        ("length", {"keys": (1, KV_HEADS, L + 4, SIZE)}),
        ("keys", {"keys": (1, KV_HEADS, L - 1, SIZE)}),
        ("caches", {"keys": (2, KV_HEADS, CAPACITY, SIZE)}),
        ("caches", {"query": (3, L, HEADS, SIZE), "key": (3, L, KV_HEADS, SIZE)}),
        ("offset", {"query": (2, 12, HEADS, SIZE), "key": (2, 12, KV_HEADS, SIZE)}),
        ("length", {"query": (2, 18, HEADS, SIZE), "key": (2, 18, KV_HEADS, SIZE)}),
    ],
    ids=case_id,
)
def test_a_compiled_graph_checks_other_shapes(argument, shapes):
    """Otherwise it would write beyond the end of a cache."""
    offset = 30 if argument == "offset" else 0

    def call(query, key, keys):
        caches = [(keys, keys, 5), None]
        return cached_attention(query, key, key, caches, TABLE, TABLE, offset)[0]

    compiled = mx.compile(call, shapeless=True)
    usual = {"query": FITTING["query"].shape, "key": FITTING["key"].shape, "keys": KEYS.shape}
    mx.eval(compiled(*(zeros(*shape) for shape in usual.values())))
    with refused(argument, function="cached_attention"):
        mx.eval(compiled(*(zeros(*shape) for shape in (usual | shapes).values())))
    longer = usual | {"keys": (1, KV_HEADS, 2 * CAPACITY, SIZE)}
    given = [normal(*shape) for shape in longer.values()]
    assert mx.array_equal(compiled(*given), call(*given))


def test_a_compiled_graph_refuses_heads_without_a_kernel():
    def call(query, table, keys):
        return cached_attention(query, query, query, [(keys, keys, 5)], table, table, 0)[0]

    def arguments(size):
        return zeros(1, 1, 2, size), zeros(9, size // 2), zeros(1, 2, 9, size)

    compiled = mx.compile(call, shapeless=True)
    mx.eval(compiled(*arguments(16)))
    with pytest.raises(NotImplementedError, match=r"^cached_attention: no fused kernel: .*shapeless=True"):
        mx.eval(compiled(*arguments(300)))


def test_a_failed_allocation_is_an_error_each_time():
    """For each result evaluated first, and again after that."""
    capacity = 2**31 - 1
    huge = mx.broadcast_to(zeros(1, 1, 1, 256), (1, 64, capacity, 256))
    table = RotationTable(256, 9, 10000)
    query = zeros(1, 1, 64, 256)
    for first in range(3):
        out, ((keys, values),) = cached_attention(
            query, query, query, [(huge, huge, 5)], table.cos, table.sin, 0
        )
        results = [out, keys, values]
        for result in (results[first], *results):
            with pytest.raises(RuntimeError, match="alloc"):
                mx.eval(result)


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^cached_attention: .*gpu"):
        cached_attention(**FITTING, stream=mx.gpu)
