"""Slow: every case in every order of the lanes, with every compiler; the mutants with the second compiler."""

import pytest

from ...support.cases import qkv
from ..harness.toolchain import COMPILERS
from ..mutants.readable import READABLE_MUTANTS
from ..mutants.test_readable import findings_in_readable
from .readable_cases import CASES
from .run import readable_kernel, readable_source
from .test_readable import check

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_kernel_computes_attention_in_every_order(case, order, compiler):
    check(*case.inputs(), **case.options(), order=order, kernel=readable_kernel(compiler))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("L", "S"), [(512, 512), (200, 700), (300, 150)])
@pytest.mark.parametrize("E", [64, 128])
def test_the_heads_of_a_model(compiler, L, S, E):
    """14 query heads on 2 key/value heads."""
    inputs = qkv(batch=(1,), heads=14, kv_heads=2, L=L, S=S, E=E)
    check(*inputs, causal=True, kernel=readable_kernel(compiler))


@pytest.mark.parametrize("compiler", list(COMPILERS)[1:])
@pytest.mark.parametrize("mutant", READABLE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found_with_every_compiler(mutant, compiler):
    mutant.assert_found(findings_in_readable(mutant.applied(readable_source()), compiler))
