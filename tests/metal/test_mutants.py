"""A few calls find every wrong kernel on the lists; the right ones pass them."""

import mlx.core as mx
import pytest

from metal_source import inlined

from ..support.cases import normal
from ..support.check import compare
from .cases import Case
from .decode_mutants import DECODE_MUTANTS
from .flash_attention import (
    FAST,
    readable_kernel,
    readable_source,
    run_decode,
    run_prefill,
    run_readable,
)
from .harness.toolchain import BuildError, available_compilers
from .mutants import MUTANTS, NUMBERS
from .prefill_mutants import PREFILL_MUTANTS

READABLE_SIZES, FAST_SIZE = (72, 128, 33, 16, 8), 80
needs_clang = pytest.mark.skipif(
    "clang" not in available_compilers(), reason="the fast kernels need clang++-19"
)


def calls(E1, E2, E3, E4, E5):
    """Inputs and options, for five head sizes; the last two are more than a careless kernel can stand."""
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
    key = mx.where(hidden[:, None], mx.nan, normal(1, 1, 40, E5))
    yield (normal(1, 1, 2, E5), key, normal(1, 1, 40, E5)), {"mask": mx.where(hidden, -mx.inf, 0.0)}


def findings(run, sizes):
    """What is wrong with a kernel, in words; `run` takes the arguments of a call."""
    found = []
    for inputs, options in calls(*sizes):
        try:
            out, lse, reports = run(*inputs, **options)
        except BuildError as error:
            return [str(error) if "threadgroup memory" in str(error) else "does not compile"]
        found += reports
        try:
            compare(out, lse, *inputs, **options)
        except AssertionError:
            found.append(NUMBERS)
    return found


def findings_in_readable(source, compiler=None):
    def run(*inputs, **options):
        return run_readable(*inputs, **options, kernel=readable_kernel(compiler, source))

    return findings(run, READABLE_SIZES)


def findings_in_fast(run_kernel, source, **settings):
    def run(*inputs, **options):
        return run_kernel(*inputs, **options, **settings, source=source)

    return findings(run, [FAST_SIZE] * 5)


def findings_in_prefill(source):
    return findings_in_fast(run_prefill, source)


def findings_in_decode(source):
    return [
        *findings_in_fast(run_decode, source),
        *findings_in_fast(run_decode, source, keys_per_split=24),
    ]


def some_kernels(headers, instances):
    """The text of the fast kernels with a few of them."""

    def left_out(line):
        return line.startswith("TINY_LLM_") or (
            "metal/kernels/" in line and not any(header in line for header in headers)
        )

    lines = FAST.read_text().splitlines(keepends=True)
    return inlined("".join([*(line for line in lines if not left_out(line)), *instances]))


def prefill_kernel():
    return some_kernels(["prefill.h"], [f"TINY_LLM_PREFILL(f32, float, {FAST_SIZE}, 32)\n"])


def decode_kernels():
    names = ["decode_f32", "decode_split_f32"]
    instances = [f"TINY_LLM_DECODE({name}, float, float, {FAST_SIZE})\n" for name in names]
    return some_kernels(["decode.h", "merge.h"], [*instances, "TINY_LLM_MERGE(f32, float)\n"])


def mutants_of_the_readable_kernel():
    """Those that the numbers alone betray are left to the long form."""
    for mutant in MUTANTS:
        marks = pytest.mark.slow if mutant.found_by == NUMBERS else ()
        yield pytest.param(mutant, id=mutant.name, marks=marks)


def test_the_readable_kernel_is_clean():
    assert findings_in_readable(readable_source()) == []


@pytest.mark.parametrize("mutant", list(mutants_of_the_readable_kernel()))
def test_a_mutant_of_the_readable_kernel_is_found(mutant):
    mutant.assert_found(findings_in_readable(mutant.applied(readable_source())))


@needs_clang
def test_the_prefill_kernel_is_clean():
    assert findings_in_prefill(prefill_kernel()) == []


@needs_clang
@pytest.mark.slow
@pytest.mark.parametrize("mutant", PREFILL_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_prefill_kernel_is_found(mutant):
    mutant.assert_found(findings_in_prefill(mutant.applied(prefill_kernel())))


@needs_clang
def test_the_decode_kernels_are_clean():
    assert findings_in_decode(decode_kernels()) == []


@needs_clang
@pytest.mark.slow
@pytest.mark.parametrize("mutant", DECODE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_of_the_decode_kernels_is_found(mutant):
    mutant.assert_found(findings_in_decode(mutant.applied(decode_kernels())))
