"""The documentation of `quantized_matmul` lists the numbers of rows that share an order of summation."""

import itertools
import re

import mlx.core as mx
import pytest

from tiny_llm.runtime.extension import load_extension

from ...support.cases import DTYPE_IDS, DTYPES, normal
from ...support.native import active_isa

quantized_matmul = load_extension().quantized_matmul
GROUPS, GROUP, N, MOST = 16, 64, 256, 70


def orders(dtype: mx.Dtype) -> list[range]:
    """The numbers of rows of each order on this processor, by the docstring."""
    lines = dict(re.findall(r"^ *- (.+): (.+), more$", quantized_matmul.__doc__, re.MULTILINE))
    amx = {mx.bfloat16: "AMX, bfloat16", mx.float16: "AMX, float16", mx.float32: "AMX, float32"}
    pairs, vectors, others = "AVX-512 BF16, bfloat16", "AVX-512", "other instruction sets"
    assert set(lines) == {*amx.values(), pairs, vectors, others}
    tables = {"amx": amx, "avx512bf16": {mx.bfloat16: pairs}}
    isa = active_isa()
    line = lines[tables.get(isa, {}).get(dtype, vectors if isa.startswith("avx512") else others)]
    ends = [tuple(map(int, part.split("-"))) for part in line.split(", ")]
    return [range(first, last + 1) for first, last in ends] + [range(ends[-1][1] + 1, MOST)]


def there_and_back(x: mx.array, sign: int = 1) -> mx.array:
    """The quantization groups of each row of x, then the same groups in reverse order, times sign."""
    parts = mx.unflatten(x, 1, (GROUPS, -1))
    return mx.flatten(mx.concatenate([parts, sign * parts[:, ::-1]], axis=1), 1, 2)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_the_first_row_changes_at_the_documented_sizes(dtype, bits):
    # Each product appears twice, with both signs: the result is the rounding error of the sum.
    x = there_and_back(normal(MOST, GROUPS * GROUP, dtype=dtype), -1)
    packed = mx.quantize(normal(N, GROUPS * GROUP, dtype=dtype, seed=1), GROUP, bits)
    weight, scales, biases = map(there_and_back, packed)

    def first_row(rows):
        return quantized_matmul(scales, biases, GROUP, bits, x[:rows], weight, True)[0]

    ends = [{part[0], part[len(part) // 2], part[-1]} for part in orders(dtype)]
    assert len(ends) >= 3
    by_order = [[first_row(rows) for rows in numbers] for numbers in ends]
    for same in by_order:
        assert all(mx.array_equal(row, same[0]) for row in same)
    for one, other in itertools.pairwise(by_order):
        assert not mx.array_equal(one[0], other[0])
