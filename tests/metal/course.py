"""The GPU kernels for the course's tests: on a GPU where MLX has one, otherwise in the harness.

A machine that has neither skips the test and prints the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import mlx.core as mx
import pytest

from extensions import tiny_llm_ext
from tiny_llm import flash_attention

from ..support.products.quantized import Packed
from .attention.run import run_readable
from .harness.toolchain import BuildError
from .product.run import run_quantized


def attention_on_gpu(
    query: mx.array, key: mx.array, value: mx.array, mask: mx.array | str | None = None
) -> mx.array:
    """`flash_attention` of [B, H, L, E] in float32."""
    if mx.is_available(mx.gpu):
        with mx.stream(mx.gpu):
            return flash_attention(query, key, value, mask=mask)
    causal = isinstance(mask, str) and mask == "causal"
    result = result_of(lambda: run_readable(query, key, value, mask=None if causal else mask, causal=causal))
    check_reports(result.reports)
    return result.out


Result = TypeVar("Result")
said: set[str] = set()


def result_of(run: Callable[[], Result]) -> Result:
    """What the harness computed; the first test of a kernel that does not compile shows the messages."""
    try:
        return run()
    except BuildError as error:
        messages = str(error)
    known = messages in said
    said.add(messages)
    words = ", as a test before this one shows" if known else f":\n{messages}"
    pytest.fail(f"the kernel does not compile{words}", pytrace=False)


def check_reports(reports: list[str]) -> None:
    """What the harness saw; pytest explains no assertion of this file."""
    assert not reports, "\n".join(reports)


def product_on_gpu(a: mx.array, weights: Packed) -> mx.array:
    """`quantized_matmul` of [M, K] by our kernel, which only Metal has among the GPUs."""
    if mx.metal.is_available():
        scales, biases, group_size, bits, words = weights
        return tiny_llm_ext.quantized_matmul(scales, biases, group_size, bits, a, words, True, mx.gpu)
    result = result_of(lambda: run_quantized(a, weights))
    check_reports(result.reports)
    return result.out
