"""A shapeless compiled graph checks the shapes of each call: no kernel reads beyond an array."""

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import normal
from ...support.products.quantized import packed

native = load_extension()
K, OTHER = 64, 128
WEIGHTS = packed(8, K)
TRIPLE = WEIGHTS.words, WEIGHTS.scales, WEIGHTS.biases
TABLE = mx.zeros((16, K // 2))

PAGES = {
    "query": normal(4, 3, K),
    "key_pages": normal(5, 1, 16, K, seed=1),
    "value_pages": normal(5, 1, 16, K, seed=2),
    "block_table": mx.array([[0, 1], [2, 3]], dtype=mx.int32),
    "context_lens": mx.array([20, 30], dtype=mx.int32),
}


def paged(name):
    """Attention over pages as a function of that argument."""
    return lambda x: native.paged_attention(**(PAGES | {name: x}), num_kv_heads=1, num_heads=2)


# A function to compile, an array that it accepts, and one that it refuses.
CALLS = {
    "linear": (lambda x: native.linear(x, mx.ones((8, K))), normal(3, K), normal(3, OTHER)),
    "quantized_matmul": (
        lambda x: native.quantized_matmul(*WEIGHTS[:4], x, WEIGHTS.words, True),
        normal(3, K),
        normal(3, K // 2),
    ),
    "quantized_linear": (
        lambda x: native.quantized_linear(x, [TRIPLE], 64, 4)[0],
        normal(3, K),
        normal(3, K // 2),
    ),
    "quantized_linear with a residual": (
        lambda x: native.quantized_linear(mx.ones((3, K)), [TRIPLE], 64, 4, residual=x)[0],
        normal(3, 8),
        normal(2, 8),
    ),
    "quantized_linear with a norm": (
        lambda x: native.quantized_linear(mx.ones((3, K)), [TRIPLE], 64, 4, norm=(x, 1e-5))[0],
        normal(K),
        normal(K // 2),
    ),
    "rms_norm": (lambda x: native.rms_norm(x, mx.ones(K), 1e-5), normal(3, K), normal(3, OTHER)),
    "silu_multiply": (lambda x: native.silu_multiply(x, mx.ones((3, K))), normal(3, K), normal(4, K)),
    "rope": (lambda x: native.rope(x, TABLE, TABLE, 6), normal(1, 10, 2, K), normal(1, 11, 2, K)),
    "argmax": (native.argmax, normal(3, 5), mx.zeros((3, 0))),
    "logsumexp": (native.logsumexp, normal(3, 5), mx.zeros((3, 0))),
    "top_k": (lambda x: native.top_k(x, 5)[1], normal(3, 9), normal(3, 4)),
    "categorical with logits": (lambda x: native.categorical(x, mx.ones(3) / 2), normal(3, 5), normal(2, 5)),
    "categorical with uniform": (
        lambda x: native.categorical(normal(3, 5), x),
        mx.array([0.1, 0.5, 0.9]),
        mx.zeros(4),
    ),
    "quantized_rows with a weight": (
        lambda x: native.quantized_rows(mx.array([7]), x, *TRIPLE[1:], 64, 4),
        WEIGHTS.words,
        mx.zeros((9, 8), dtype=mx.uint32),
    ),
    "quantized_rows with scales": (
        lambda x: native.quantized_rows(mx.array([7]), WEIGHTS.words, x, WEIGHTS.biases, 64, 4),
        WEIGHTS.scales,
        mx.ones((8, 2)),
    ),
    "paged_attention with a query": (paged("query"), PAGES["query"], normal(2, 3, K)),
    "paged_attention with keys": (paged("key_pages"), PAGES["key_pages"], normal(5, 3, 16, K)),
    "paged_attention with values": (paged("value_pages"), PAGES["value_pages"], normal(1, 1, 2, K)),
    "paged_attention with a table": (paged("block_table"), PAGES["block_table"], PAGES["block_table"][:1]),
    "paged_attention with lengths": (paged("context_lens"), PAGES["context_lens"], mx.array([20])),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_shapes_are_checked(name):
    call, fitting, wrong = CALLS[name]
    compiled = mx.compile(call, shapeless=True)
    assert mx.array_equal(compiled(fitting), call(fitting))
    with pytest.raises(ValueError, match=f"^{name.split()[0]}: .*: got .*, expected "):
        mx.eval(compiled(wrong))
    assert mx.array_equal(compiled(fitting), call(fitting))
