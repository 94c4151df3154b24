"""Mistakes in packed weights and FlashAttention: in Python, Metal kernels and CPU kernels."""

from . import schedules
from .mistake import Mistake, Table

QUANTIZE = "tiny_llm/quantize.py"
ATTENTION = "tiny_llm/attention.py"
KERNEL = "extensions/src/flash_attention.metal"
WEIGHTS = "extensions/src/metal/quantized/weights.h"
SOFTMAX = "extensions/src/cpu/attention/online_softmax-inl.h"
CALL = "out, lse = load_extension().attention(query, key, value, scale=number, mask=mask, **options)"
# Of the schedules, what the tests of the chapter find; tests/course finds all.
IN_PYTHON = (
    "-inf - -inf where nothing is visible yet",
    "the sums are not rescaled",
    "only the denominator is rescaled",
    "the maximum of the tile, not of all tiles",
)

MISTAKES: Table = {
    "week_2_day_2": (
        Mistake(
            "the bias of a layer is forgotten",
            QUANTIZE,
            "    product = product if bias is None else product + bias\n",
            "",
            "test_task_1_quantized_linear_is_a_linear_map",
        ),
        Mistake(
            "scales and biases are swapped",
            QUANTIZE,
            "            scales=mlx_layer.scales,\n            biases=mlx_layer.biases,\n",
            "            scales=mlx_layer.biases,\n            biases=mlx_layer.scales,\n",
            "test_task_1_quantized_weights_are_those_of_the_layer",
        ),
        Mistake(
            "the highest bits are unpacked first",
            WEIGHTS,
            "float(word >> (i * kBits)",
            "float(word >> (32 - kBits - i * kBits)",
            "test_task_3_quantized_matmul_gpu_unpacks_the_lowest_bits_first",
        ),
        Mistake(
            "the bias of a group is forgotten",
            WEIGHTS,
            "* scale + bias;",
            "* scale;",
            "test_task_3_quantized_matmul_gpu_unpacks_the_lowest_bits_first",
        ),
        Mistake(
            "every group has the scale of the first",
            WEIGHTS,
            "return int64_t(n) * (args.K / kChunk >> args.group_shift) + (chunk >> args.group_shift);",
            "return int64_t(n) * (args.K / kChunk >> args.group_shift);",
            "test_task_3_quantized_matmul_gpu",
        ),
        Mistake(
            "the weights are unpacked when the model is loaded",
            "tiny_llm/course/stages.py",
            "WEEK2 = replace(WEEK1, load_weights=quantized_weights)",
            "WEEK2 = WEEK1",
            "test_task_4_model_keeps_its_weights_packed",
        ),
    ),
    "week_2_day_4": (
        *(
            mistake._replace(caught_by="test_task_0_flash_attention_in_python")
            for mistake in schedules.MISTAKES
            if mistake.name in IN_PYTHON
        ),
        Mistake(
            "the scale is not passed on",
            ATTENTION,
            CALL,
            CALL.replace("scale=number", "scale=None"),
            "test_task_1_flash_attention_with_a_given_scale",
        ),
        Mistake(
            "the mask is not passed on",
            ATTENTION,
            CALL,
            CALL.replace("mask=mask", "mask=None"),
            "test_task_1_flash_attention_takes_any_rank_and_precision",
        ),
        Mistake(
            "the sums are not rescaled when the maximum grows (alpha = 1)",
            KERNEL,
            "const float alpha = exp(m - base);",
            "const float alpha = 1.0f;",
            "test_task_3_flash_attention_gpu_kernel_one_idea rescales_when_the_maximum_grows",
        ),
        Mistake(
            "the output is not rescaled, only its denominator",
            KERNEL,
            "o[r][e] *= alpha;",
            "o[r][e] *= 1.0f;",
            "test_task_3_flash_attention_gpu_kernel_one_idea rescales_when_the_maximum_grows",
        ),
        Mistake(
            "the denominator is not rescaled, only the output",
            KERNEL,
            "l = alpha * l + simd_sum(p);",
            "l = l + simd_sum(p);",
            "test_task_3_flash_attention_gpu_kernel_one_idea rescales_when_the_maximum_grows",
        ),
        Mistake(
            "the maximum is that of the newest tile",
            KERNEL,
            "const float m_new = max(m, simd_max(s));",
            "const float m_new = simd_max(s);",
            "test_task_3_flash_attention_gpu_kernel_one_idea keeps_an_earlier_maximum",
        ),
        Mistake(
            "no maximum is subtracted",
            KERNEL,
            "const float base = m_new == -INFINITY ? 0.0f : m_new;",
            "const float base = 0.0f;",
            "test_task_3_flash_attention_gpu_kernel_one_idea subtracts_the_maximum",
        ),
        Mistake(
            "only the first tile is read",
            KERNEL,
            "begin < end; begin += kLanes",
            "begin < min(end, kLanes); begin += kLanes",
            "test_task_3_flash_attention_gpu_kernel_one_idea averages_all_tiles",
        ),
        Mistake(
            "an incomplete last tile is left out",
            KERNEL,
            "begin < end; begin += kLanes",
            "begin + kLanes <= end; begin += kLanes",
            "test_task_3_flash_attention_gpu_kernel_one_idea averages_all_tiles",
        ),
        Mistake(
            "the division at the end is forgotten",
            KERNEL,
            "o[r][e] * inverse;",
            "o[r][e];",
            "test_task_3_flash_attention_gpu_kernel_one_idea averages_all_tiles",
        ),
        Mistake(
            "every tile is divided",
            KERNEL,
            "    m = m_new;\n",
            "    m = m_new;\n    if (l > 0.0f) for (int e = lane; e < E; e += kLanes) o[r][e] /= l;\n",
            "test_task_3_flash_attention_gpu_kernel_one_idea averages_all_tiles",
        ),
        Mistake(
            "the scale is forgotten",
            KERNEL,
            "s = args.scale * dot;",
            "s = dot;",
            "test_task_3_flash_attention_gpu_kernel_one_idea multiplies_scores_by_the_scale",
        ),
        Mistake(
            "causal attention as if L == S",
            KERNEL,
            "args.causal ? row + (S - L) + 1 : S;",
            "args.causal ? min(row + 1, S) : S;",
            "test_task_3_flash_attention_gpu_kernel_one_idea aligns_the_last_query_with_the_last_key",
        ),
        Mistake(
            "causal attention without the row's own key",
            KERNEL,
            "args.causal ? row + (S - L) + 1 : S;",
            "args.causal ? row + (S - L) : S;",
            "test_task_3_flash_attention_gpu_kernel_one_idea aligns_the_last_query_with_the_last_key",
        ),
        Mistake(
            "query head n reads key/value head n % H",
            KERNEL,
            "int64_t(n / args.group) * S * E;",
            "int64_t(n % (args.heads / args.group)) * S * E;",
            "test_task_3_flash_attention_gpu_kernel_one_idea reads_the_shared_head",
        ),
        Mistake(
            "-inf - -inf in a tile without a key",
            KERNEL,
            "const float base = m_new == -INFINITY ? 0.0f : m_new;",
            "const float base = m_new;",
            "test_task_3_flash_attention_gpu_kernel_one_idea skips_tiles_without_a_key",
        ),
        Mistake(
            "0 / 0 in a row without a key",
            KERNEL,
            "l == 0.0f ? 0.0f : o[r][e] * inverse;",
            "o[r][e] * inverse;",
            "test_task_3_flash_attention_gpu_kernel_one_idea skips_tiles_without_a_key",
        ),
        Mistake(
            "the switch of the model does nothing",
            "tiny_llm/course/stages.py",
            "use_flash_attention=enable_flash_attn)",
            "use_flash_attention=False)",
            "test_task_4_model_attends_with_the_kernel_that_enable_flash_attn_chooses",
        ),
    ),
}

# Mistakes in CPU kernels, which must be compiled.
NATIVE: Table = {
    "week_2_day_2": (
        Mistake(
            "the highest bits are unpacked first",
            "extensions/src/cpu/vec/scalar.h",
            "(W)((U)words << (32 - kBits - kBits * kIndex));",
            "(W)((U)words << (kBits * kIndex));",
            "test_task_2_quantized_matmul_cpu_unpacks_the_lowest_bits_first",
        ),
        Mistake(
            "the bias of a group is forgotten",
            "extensions/src/cpu/quantized/skinny-inl.h",
            "sums.acc[m] = fma(sums.factors.bias[group % kLanes], set1(x_sums[m]), sums.acc[m]);",
            ";",
            "test_task_2_quantized_matmul_cpu_unpacks_the_lowest_bits_first",
        ),
    ),
    "week_2_day_4": (
        Mistake(
            "the sums are not rescaled when the maximum grows (alpha = 1)",
            SOFTMAX,
            "F alpha = exp2(exponent_between(old, base));",
            "F alpha = set1(1);",
            "test_task_2_flash_attention_kernel_one_idea rescales_when_the_maximum_grows",
        ),
        Mistake(
            "-inf - -inf in a tile without a key",
            SOFTMAX,
            "F base = select(equal(m, set1(-INFINITY)), zero(), m);",
            "F base = m;",
            "test_task_2_flash_attention_kernel_one_idea skips_tiles_without_a_key",
        ),
        Mistake(
            "causal attention as if L == S",
            "extensions/src/cpu/attention/query_tile-inl.h",
            "int64_t position = i + task.n_k - task.n_q;",
            "int64_t position = i;",
            "test_task_2_flash_attention_kernel_one_idea aligns_the_last_query_with_the_last_key",
        ),
        Mistake(
            "the division at the end is forgotten",
            "extensions/src/cpu/attention/epilogue-inl.h",
            "factor[lane] = l == 0 ? 0 : factor[lane] / l;",
            "factor[lane] = l == 0 ? 0 : factor[lane];",
            "test_task_2_flash_attention_kernel_one_idea averages_all_tiles",
        ),
    ),
}
