"""`pdm run build-ext-test`: the module built in place loads, shares arrays with MLX, and computes."""

import mlx.core as mx

from tiny_llm_ext import cpu_isa, flash_attention

with mx.stream(mx.cpu):
    query, key, value = mx.random.normal((3, 4, 33, 16))
    result = flash_attention(query, key, value, scale=0.25, num_kv_heads=4, num_heads=4)
    expected = mx.softmax(0.25 * query @ key.swapaxes(1, 2), axis=-1) @ value
    if not mx.allclose(result, expected, rtol=1e-5, atol=1e-6):
        raise SystemExit("The extension loads, but its result is wrong.")
print(f"The extension works; its kernels use {cpu_isa()}.")
