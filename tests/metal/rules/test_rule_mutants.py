"""Each test of this folder and of offsets/ finds a mutant of its kind."""

import pytest

from ..attention import run as flash_attention
from ..mutants.test_fast import some_kernels
from ..product import run as quantized
from .mutants import RULE_MUTANTS

ATTENTION = """
TINY_LLM_PREFILL(f32, float, 64, 32)
TINY_LLM_PREFILL(f16, half, 64, 32)
TINY_LLM_DECODE(decode_f32, float, float, false, 64)
TINY_LLM_DECODE(decode_f16, half, half, false, 64)
TINY_LLM_DECODE(decode_split_f32, float, float, true, 64)
TINY_LLM_MERGE(f32, float)
"""
PRODUCTS = """
TINY_LLM_FEW_ROWS(few_rows_f16, half, 4, kFewRows)
TINY_LLM_FEW_ROWS(few_rows_f32, float, 8, kFewRows)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wrong", RULE_MUTANTS, ids=lambda wrong: wrong.mutant.name)
def test_a_mutant_is_found_by_its_test(wrong, monkeypatch):
    if wrong.is_quantized:
        text = quantized.source().split("#define TINY_LLM_QUANTIZED(")[0] + PRODUCTS
        module, source = quantized, "source"
    else:
        text = some_kernels(["prefill.h", "decode.h", "merge.h"], [ATTENTION])
        module, source = flash_attention, "fast_source"
    mutated = wrong.mutant.applied(
        text
    )  # fails if the kernel no longer has the text that the mutant replaces
    monkeypatch.setattr(module, source, lambda: mutated)
    with pytest.raises(AssertionError):
        wrong.test()
