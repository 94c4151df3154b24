"""Mistakes in attention, grouped attention and masks."""

from .mistake import Mistake, Table

BASICS = "tiny_llm/basics.py"
DENSE = "tiny_llm/ops/dense.py"
ATTENTION = "tiny_llm/attention.py"
SCALE = "scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)"
DIVISION = "result = (weights @ value.astype(mx.float32)) / mx.where(total == 0, 1, total)"
GROUPS = """    grouped = mx.unflatten(query, -3, (heads, query_heads // heads))
    result = attend(grouped, key[..., None, :, :], value[..., None, :, :], scale, mask)
"""
CAUSAL = "return mx.where(column <= row + (S - L), 0.0, -mx.inf).astype(dtype)"

MISTAKES: Table = {
    "week_1_day_1": (
        Mistake(
            "the maximum is not subtracted before exp",
            BASICS,
            "mx.exp(wide - wide.max(axis=axis, keepdims=True))",
            "mx.exp(wide)",
            "test_task_1_softmax_survives_numbers_whose_exponential_overflows",
        ),
        Mistake(
            "softmax is always along the last axis",
            BASICS,
            "return (exp / exp.sum(axis=axis, keepdims=True)).astype(x.dtype)",
            "return (exp / exp.sum(axis=-1, keepdims=True)).astype(x.dtype)",
            "test_task_1_softmax_follows_the_formula_along_any_axis",
        ),
        Mistake(
            "softmax without the division",
            BASICS,
            "return (exp / exp.sum(axis=axis, keepdims=True)).astype(x.dtype)",
            "return exp.astype(x.dtype)",
            "test_task_1_softmax_follows_the_formula_along_any_axis",
        ),
        Mistake(
            "the scale is forgotten",
            DENSE,
            SCALE,
            "scores = scores * (1 if scale is None else scale)",
            "test_task_1_simple_attention_divides_scores_by_the_root_of_the_head_size",
        ),
        Mistake(
            "the scale is 1 / D",
            DENSE,
            SCALE,
            SCALE.replace("-0.5", "-1.0"),
            "test_task_1_simple_attention_divides_scores_by_the_root_of_the_head_size",
        ),
        Mistake(
            "a given scale is multiplied by the default one",
            DENSE,
            SCALE,
            "scores = scores * query.shape[-1] ** -0.5 * (1 if scale is None else scale)",
            "test_task_1_simple_attention_with_a_given_scale",
        ),
        Mistake(
            "weights that do not add up to 1",
            DENSE,
            DIVISION,
            "result = weights @ value.astype(mx.float32)",
            "test_task_1_simple_attention_divides_scores_by_the_root_of_the_head_size",
        ),
        Mistake(
            "scores in the precision of the inputs",
            DENSE,
            "scores = query.astype(mx.float32) @ key.astype(mx.float32).swapaxes(-1, -2)",
            "scores = query @ key.swapaxes(-1, -2)",
            "test_task_1_simple_attention_holds_scores_in_float32",
        ),
        Mistake(
            "no maximum is subtracted from the scores",
            DENSE,
            "mx.stop_gradient(mx.where(mx.isneginf(top), 0, top))",
            "0",
            "test_task_1_simple_attention_of_scores_whose_exponential_overflows",
        ),
        Mistake(
            "-inf - -inf, and then 0 / 0",
            DENSE,
            "mx.where(mx.isneginf(top), 0, top)",
            "top",
            "test_task_1_simple_attention_gives_zeros_to_a_query_that_sees_no_key",
        ),
        Mistake(
            "a bool mask is added as 0 and 1",
            DENSE,
            "        scores = mx.where(hidden, -mx.inf, scores if mask.dtype == mx.bool_ else scores + mask)",
            "        scores = scores + mask",
            "test_task_1_simple_attention_keeps_keys_that_a_bool_mask_marks_true",
        ),
        Mistake(
            "a bool mask hides what is True",
            DENSE,
            "hidden = mask == (False if mask.dtype == mx.bool_ else -mx.inf)",
            "hidden = mask == (True if mask.dtype == mx.bool_ else -mx.inf)",
            "test_task_1_simple_attention_keeps_keys_that_a_bool_mask_marks_true",
        ),
        Mistake(
            "the bias of a linear map is forgotten",
            BASICS,
            "return mx.matmul(x, w.T) if bias is None else mx.addmm(bias, x, w.T)",
            "return mx.matmul(x, w.T)",
            "test_task_2_linear_maps_the_last_axis",
        ),
        Mistake(
            "heads are split from the tokens, not from the hidden vector",
            ATTENTION,
            "return mx.unflatten(x, -1, (self.num_heads, -1)).swapaxes(1, 2)",
            "return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)",
            "test_task_2_multi_head_attention_attends_in_each_head",
        ),
        Mistake(
            "neighbouring elements belong to different heads",
            ATTENTION,
            "return mx.unflatten(x, -1, (self.num_heads, -1)).swapaxes(1, 2)",
            "return mx.unflatten(x, -1, (-1, self.num_heads)).moveaxis(-1, 1)",
            "test_task_2_multi_head_attention_attends_in_each_head",
        ),
        Mistake(
            "the output projection is forgotten",
            ATTENTION,
            "return linear(mx.flatten(attended.swapaxes(1, 2), -2, -1), self.wo)",
            "return mx.flatten(attended.swapaxes(1, 2), -2, -1)",
            "test_task_2_multi_head_attention_attends_in_each_head",
        ),
    ),
    "week_1_day_3": (
        Mistake(
            "query head h reads key/value head h % H",
            ATTENTION,
            GROUPS,
            """    grouped = mx.unflatten(query, -3, (query_heads // heads, heads))
    result = attend(grouped, key[..., None, :, :, :], value[..., None, :, :, :], scale, mask)
""",
            "test_task_1_grouped_attention_reads_the_shared_head",
        ),
        Mistake(
            "the scale is forgotten",
            DENSE,
            SCALE,
            "scores = scores * (1 if scale is None else scale)",
            "test_task_1_grouped_attention_follows_the_formula",
        ),
        Mistake(
            "keys and values are copied for each query head",
            ATTENTION,
            GROUPS,
            """    key, value = (mx.repeat(x, query_heads // heads, axis=-3) for x in (key, value))
    grouped = mx.unflatten(query, -3, (query_heads, 1))
    result = attend(grouped, key[..., None, :, :], value[..., None, :, :], scale, mask)
""",
            "test_task_1_grouped_attention_does_not_repeat_keys_and_values",
        ),
        Mistake(
            "the causal mask is aligned at the first token",
            ATTENTION,
            CAUSAL,
            CAUSAL.replace("row + (S - L)", "row"),
            "test_task_2_causal_mask_is_aligned_at_the_lower_right",
        ),
        Mistake(
            "no token sees itself",
            ATTENTION,
            CAUSAL,
            CAUSAL.replace("<=", "<"),
            "test_task_2_causal_mask_is_aligned_at_the_lower_right",
        ),
        Mistake(
            "the causal mask is upside down",
            ATTENTION,
            CAUSAL,
            CAUSAL.replace("<=", ">="),
            "test_task_2_causal_mask_is_aligned_at_the_lower_right",
        ),
        Mistake(
            "causal attention with the offset of equal lengths",
            ATTENTION,
            "        mask = causal_mask(L, S, mx.float32)\n",
            "        mask = causal_mask(S, S, mx.float32)[:L]\n",
            "test_task_2_grouped_attention_takes_causal_by_name",
        ),
        Mistake(
            "the biases of query, key and value are forgotten",
            "tiny_llm/models/qwen2.py",
            "        return [self.bq, self.bk, self.bv]",
            "        return None",
            "test_task_3_attention_layer_projects_rotates_and_attends",
        ),
        Mistake(
            "keys are not rotated",
            "tiny_llm/models/qkv.py",
            "        key = self.rope.heads_first(self.key, self.offsets)\n",
            "        key = self.key.swapaxes(1, 2)\n",
            "test_task_3_attention_layer_projects_rotates_and_attends",
        ),
        Mistake(
            "values are rotated, too",
            "tiny_llm/models/qkv.py",
            "        return query, key, self.value.swapaxes(1, 2)\n",
            "        return query, key, self.rope.heads_first(self.value, self.offsets)\n",
            "test_task_3_attention_layer_projects_rotates_and_attends",
        ),
        Mistake(
            "neighbours are rotated, as in the original paper",
            "tiny_llm/models/qwen2.py",
            "RoPE(self.head_dim, self.max_seq_len, self.theta, scaling=self.rope_scaling)",
            "RoPE(self.head_dim, self.max_seq_len, self.theta, traditional=True)",
            "test_task_3_attention_layer_projects_rotates_and_attends",
        ),
        Mistake(
            "theta is left at its default",
            "tiny_llm/models/qwen2.py",
            "RoPE(self.head_dim, self.max_seq_len, self.theta, scaling=self.rope_scaling)",
            "RoPE(self.head_dim, self.max_seq_len)",
            "test_task_3_attention_layer_projects_rotates_and_attends",
        ),
        Mistake(
            "the residual of all tokens is added to the output of the last one",
            "tiny_llm/models/layers.py",
            "            residual = None if residual is None else residual[:, -1:]\n",
            "",
            "test_task_3_attention_layer_of_the_last_token_only",
        ),
    ),
}
