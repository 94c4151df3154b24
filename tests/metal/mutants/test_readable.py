"""A few calls find every mutant of the readable kernel; the kernel itself passes them."""

import mlx.core as mx
import pytest

from ...support.attention.check import compare
from ...support.cases import normal, with_nan
from ..attention.readable_cases import Case
from ..attention.run import readable_kernel, readable_source, run_readable
from ..harness.toolchain import BuildError
from .mutant import NUMBERS
from .readable import READABLE_MUTANTS

HEAD_SIZES = (72, 128, 33, 16, 8)


def calls(E1, E2, E3, E4, E5):
    """Inputs and options for five head sizes; the last two are scores that overflow exp and a hidden NaN."""
    masked = {"batch": 2, "kv_heads": 2, "L": 5, "S": 37, "E": E4}
    for case in (
        Case("incomplete tiles", L=33, S=70, E=E1),
        Case("causal", L=35, S=67, E=E2, heads=4, kv_heads=2, batch=2, causal=True),
        Case("rows without keys", L=40, S=17, E=E3, causal=True),
        Case("a mask of each head", heads=4, mask_shape=(2, 4, 5, 37), **masked),
        Case("a mask of halves", mask_shape=(5, 37), mask_type="f16", **masked),
        Case("a mask of booleans", mask_shape=(5, 1), mask_type="bool", **masked),
    ):
        yield case.inputs(), case.options()
    falling = mx.broadcast_to(-4.0 * mx.arange(70.0)[:, None], (70, E5))[None, None]
    yield (mx.ones((1, 1, 1, E5)), falling, normal(1, 1, 70, E5)), {"scale": 1 / E5}
    hidden = mx.arange(40) == 7
    key, value = (with_nan(normal(1, 1, 40, E5), hidden) for _ in range(2))
    yield (normal(1, 1, 2, E5), key, value), {"mask": mx.where(hidden, -mx.inf, 0.0)}


def findings_in_readable(source, compiler=None):
    """Reports about a kernel, and NUMBERS for wrong results."""
    found = []
    for inputs, options in calls(*HEAD_SIZES):
        try:
            out, lse, reports = run_readable(*inputs, **options, kernel=readable_kernel(compiler, source))
        except BuildError as error:
            return [str(error) if "threadgroup memory" in str(error) else "does not compile"]
        found += reports
        try:
            compare(out, lse, *inputs, **options)
        except AssertionError:
            found.append(NUMBERS)
    return found


def mutants_of_the_readable_kernel():
    """Mutants that only the numbers reveal take longer, so they are slow tests."""
    for mutant in READABLE_MUTANTS:
        marks = pytest.mark.slow if mutant.found_by == NUMBERS else ()
        yield pytest.param(mutant, id=mutant.name, marks=marks)


def test_the_readable_kernel_has_no_findings():
    assert findings_in_readable(readable_source()) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", list(mutants_of_the_readable_kernel()))
def test_a_mutant_of_the_readable_kernel_is_found(mutant):
    mutant.assert_found(findings_in_readable(mutant.applied(readable_source())))
