"""A full cache grows by a factor, so that an appended token costs the same at any length."""

import mlx.core as mx
import pytest

from tiny_llm.kv_cache import TinyKvFullCache


@pytest.mark.parametrize("new_tokens", [1, 7, 300])
def test_all_copies_together_are_at_most_three_for_each_token(new_tokens):
    cache, copied, capacity = TinyKvFullCache(), 0, 0
    while cache.offset < 20_000:
        keys, values, _ = cache.reserve((1, 1, new_tokens, 1), mx.float32)
        if keys.shape[2] != capacity:
            copied += cache.offset
            capacity = keys.shape[2]
        cache.commit(keys, values, new_tokens)
    assert 0 < copied <= 3 * cache.offset
    assert capacity <= 2 * cache.offset
