"""Pages whose elements are more than 2^31 apart: every offset into a pool has 64 bits."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import flash_attention, paged_attention

from ...support.cases import normal

HUGE = 2**31 - 1  # the longest axis that MLX has


def test_the_last_page_of_two_billion():
    """Every page is the same memory; a table may name the last one, and not the one after it."""
    key, value = normal(2, 1, 2, 16, 32)
    pools = [mx.broadcast_to(x, (HUGE, 2, 16, 32)) for x in (key, value)]
    query = normal(3, 4, 32, seed=1)
    table = mx.array([[HUGE - 1, 5], [0, HUGE - 2]], dtype=mx.int32)
    out = paged_attention(query, *pools, table, mx.array([32, 21]), causal=True, cu_seqlens_q=[0, 1, 3])
    for rows, tokens in ((slice(0, 1), 32), (slice(1, 3), 21)):
        dense = (mx.concatenate([x, x], axis=2)[:, :, :tokens] for x in (key, value))
        want = flash_attention(query[rows].swapaxes(0, 1)[None], *dense, causal=True)
        assert mx.array_equal(out[rows], want[0].swapaxes(0, 1))
    with pytest.raises((ValueError, RuntimeError), match=r"^paged_attention: block_table: got 2147483647"):
        mx.eval(paged_attention(query[:1], *pools, mx.array([[HUGE]]), mx.array([1]), cu_seqlens_q=[0, 1]))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["PHSE", "PSHE"])
def test_pages_more_than_two_to_the_31_elements_apart_in_memory(layout):
    """Two pages at the ends of 4 GB of memory."""
    rows = 2**31 // 4096 + 1
    memory = np.zeros((rows, 4096), np.float16)
    memory[[0, -1]] = np.random.default_rng(0).standard_normal((2, 4096))
    ends = mx.array(memory)[:: rows - 1]
    shape = (2, 16, 64) if layout == "PHSE" else (16, 2, 64)
    pool = mx.unflatten(ends[:, : 2 * 16 * 64], 1, shape)
    assert memoryview(pool).strides[0] == 2**32
    query = normal(3, 4, 64, dtype=mx.float16, seed=1)
    rest = {"causal": True, "cu_seqlens_q": [0, 3], "layout": layout}
    out = paged_attention(query, pool, pool, mx.array([[1, 0]]), mx.array([25]), **rest)
    near = mx.array(np.array(pool))
    want = paged_attention(query, near, near, mx.array([[1, 0]]), mx.array([25]), **rest)
    assert mx.array_equal(out, want)
    assert out.any()
