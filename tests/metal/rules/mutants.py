"""Mutants, each with the test that must find it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import mlx.core as mx

from ..mutants.mutant import Mutant
from ..offsets import test_rows, test_strides
from . import test_extremes, test_rounding


class RuleMutant(NamedTuple):
    mutant: Mutant
    test: Callable[[], None]
    is_quantized: bool = False


def found_by(test: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return partial(test, *arguments)


CAPPED = "metal::tanh(score / args.softcap)"
FAST_TANH = (
    "((metal::exp(2.0f * score / args.softcap) - 1.0f) / (metal::exp(2.0f * score / args.softcap) + 1.0f))"
)
TOP = "  float top = -INFINITY;\n"
OUTPUT = "T(divided(o[e].thread_elements()[i], l, inverse))"
LOWEST = test_extremes.LOWEST

RULE_MUTANTS = (
    # The ends of float32.
    RuleMutant(
        Mutant("tanh computed from exponentials", CAPPED, FAST_TANH),
        found_by(test_extremes.test_a_score_far_beyond_the_soft_cap_keeps_its_sign, "decode"),
    ),
    RuleMutant(
        Mutant("large negative scores count as -inf", "m == -INFINITY ? 0.0f : m;", "m < -1e30f ? 0.0f : m;"),
        found_by(test_extremes.test_a_large_negative_score_hides_nothing, "decode", LOWEST, "everywhere"),
    ),
    RuleMutant(
        Mutant("the first maximum is a finite number", TOP, "  float top = -3.0e38f;\n"),
        found_by(test_extremes.test_a_large_negative_score_hides_nothing, "prefill", LOWEST, "everywhere"),
    ),
    RuleMutant(
        Mutant(
            "a sequence begins at the last key at most",
            "length_of(in.kv_start, args.kv_start, batch, 0, args.S)",
            "length_of(in.kv_start, args.kv_start, batch, 0, args.S - 1)",
        ),
        found_by(test_extremes.test_a_sequence_may_begin_after_the_last_key, "prefill", "start", {}),
    ),
    # Rounding.
    RuleMutant(
        Mutant(
            "the output is truncated",
            OUTPUT,
            "T(as_type<float>(as_type<uint>(divided(o[e].thread_elements()[i], l, inverse)) & 0xffffe000u))",
        ),
        found_by(test_rounding.test_attention, "prefill", 64, mx.float16),
    ),
    RuleMutant(
        Mutant(
            "the weights are rounded",
            "const float p = metal::exp(s[k] - base);",
            "const float p = float(T(metal::exp(s[k] - base)));",
        ),
        found_by(test_rounding.test_nearly_equal_weights_of_many_keys_are_not_rounded, "decode", mx.float16),
    ),
    RuleMutant(
        Mutant(
            "unpacked weights are rounded",
            "w[o][i] = weight<kBits>(word, i, scale, bias);",
            "w[o][i] = float(T(weight<kBits>(word, i, scale, bias)));",
        ),
        found_by(test_rounding.test_the_quantized_product, 4, 4, 64, mx.float16),
        is_quantized=True,
    ),
    # Offsets of 32 bits.
    RuleMutant(
        Mutant(
            "rows of a tile", "rows + (begin + row) * row_stride", "rows + int((begin + row) * row_stride)"
        ),
        found_by(test_strides.test_one_axis_of_one_tensor, "key", 2, "prefill"),
    ),
    RuleMutant(
        Mutant("keys of a row", "place.key + j * args.key.row", "place.key + int(j * args.key.row)"),
        found_by(test_strides.test_one_axis_of_one_tensor, "key", 2, "decode"),
    ),
    RuleMutant(
        Mutant(
            "keys of the mask",
            "bias(mask, at_mask + t * args.mask.key",
            "bias(mask, at_mask + int(t * args.mask.key)",
        ),
        found_by(test_strides.test_one_axis_of_the_mask, mx.float32, 3, "prefill"),
    ),
    RuleMutant(
        Mutant(
            "rows of the output",
            "int64_t at_row = int64_t(n) * args.L + row;",
            "int at_row = n * args.L + row;",
        ),
        found_by(test_rows.test_the_output_of_very_many_heads, "prefill", mx.float32),
    ),
    RuleMutant(
        Mutant(
            "parts", "const int64_t rows = int64_t(args.N) * args.L;", "const int rows = args.N * args.L;"
        ),
        found_by(test_rows.test_the_parts_of_very_many_heads_and_their_merge),
    ),
    RuleMutant(
        Mutant("words", "words[int64_t(n) * (K / kPerWord) + j]", "words[n * (K / kPerWord) + j]"),
        found_by(test_rows.test_the_quantized_product, "few rows, many outputs"),
        is_quantized=True,
    ),
)
