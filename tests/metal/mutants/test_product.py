"""A few calls find every mutant of the quantized product; the kernels themselves pass them."""

import pytest

from ...support.cases import normal
from ...support.products.quantized import assert_product, packed
from ..harness.toolchain import BuildError
from ..product.run import run_quantized, source
from .mutant import NUMBERS
from .product import PRODUCT_MUTANTS

# M, N, K, group size: incomplete tiles, more chunks than lanes, all groups.
CALLS = [
    (1, 5, 192, 64),
    (5, 19, 35 * 64, 64),
    (3, 17, 96, 32),
    (8, 17, 384, 128),
    (9, 70, 192, 64),
    (35, 19, 160, 32),
]
INSTANCES = """
TINY_LLM_FEW_ROWS(one_row_f32, float, 4, 1)
TINY_LLM_FEW_ROWS(few_rows_f32, float, 4, kFewRows)
TINY_LLM_MANY_ROWS(f32, float, 4)
"""


def some_kernels():
    """The source, reduced to a few of the kernels."""
    return source().split("#define TINY_LLM_QUANTIZED(")[0] + INSTANCES


def findings(text):
    """Reports about the kernels of a source, and NUMBERS for wrong results."""
    found = []
    for M, N, K, group_size in CALLS:
        weights, a = packed(N, K, group_size=group_size), normal(M, K)
        try:
            out, reports = run_quantized(a, weights, text=text)
        except BuildError as error:
            return [str(error)]
        found += reports
        try:
            assert_product(out, a, weights)
        except AssertionError:
            found.append(NUMBERS)
    return found


def test_the_kernels_have_no_findings():
    assert findings(some_kernels()) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", PRODUCT_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant):
    mutant.assert_found(findings(mutant.applied(some_kernels())))
