"""Mistakes in RoPE, norms, feed-forward layers and blocks."""

from .mistake import Mistake, Table

BASICS = "tiny_llm/basics.py"
ROPE = "tiny_llm/positional_encoding.py"
NORM = "tiny_llm/layer_norm.py"
LAYERS = "tiny_llm/models/layers.py"
WEIGHTS = "tiny_llm/models/weights.py"
MODEL = "tiny_llm/models/model.py"

MISTAKES: Table = {
    "week_1_day_2": (
        Mistake(
            "Qwen2 pairs instead of neighbours",
            ROPE,
            "        self.traditional = traditional\n",
            "        self.traditional = False\n",
            "test_task_1_rope_turns_one_pair_after_the_other",
        ),
        Mistake(
            "neighbours instead of Qwen2 pairs",
            ROPE,
            "        self.traditional = traditional\n",
            "        self.traditional = True\n",
            "test_task_2_rope_pairs_are_half_a_vector_apart",
        ),
        Mistake(
            "the second element of a pair is rotated backwards",
            ROPE,
            "imaginary * cos + real * sin]",
            "imaginary * cos - real * sin]",
            "test_task_1_rope_turns_one_pair_after_the_other",
        ),
        Mistake(
            "every pair has the frequency of the first",
            ROPE,
            "mx.arange(half, dtype=mx.float64) / -half)",
            "mx.zeros(half, dtype=mx.float64) / -half)",
            "test_task_1_rope_turns_one_pair_after_the_other",
        ),
        Mistake(
            "the exponent counts elements, not pairs",
            ROPE,
            "mx.arange(half, dtype=mx.float64) / -half)",
            "mx.arange(half, dtype=mx.float64) / -dims)",
            "test_task_1_rope_turns_one_pair_after_the_other",
        ),
        Mistake(
            "the offset is ignored",
            ROPE,
            "        if offset is None:\n            offset = slice(0, length)",
            "        if True:\n            offset = slice(0, length)",
            "test_task_1_rope_starts_at_its_offset",
        ),
        Mistake(
            "positions begin at 1",
            ROPE,
            "return slice(index(start), index(stop))",
            "return slice(index(start) + 1, index(stop) + 1)",
            "test_task_1_rope_turns_one_pair_after_the_other",
        ),
        Mistake(
            "every row has the offset of the first",
            ROPE,
            "return [self._span(positions, length) for positions in offset]",
            "return [self._span(positions, length) for positions in offset][:1]",
            "test_task_1_rope_has_an_offset_for_each_row",
        ),
        Mistake(
            "angles in float32",
            ROPE,
            "angle = ((turns - mx.round(turns)) * (2 * math.pi)).astype(mx.float32)",
            "angle = turns.astype(mx.float32) * (2 * math.pi)",
            "test_task_2_rope_turns_elements_half_a_vector_apart",
        ),
    ),
    "week_1_day_4": (
        Mistake(
            "eps is added to the root",
            NORM,
            "wide * mx.rsqrt(mean_square + self.eps)",
            "wide / (mx.sqrt(mean_square) + self.eps)",
            "test_task_1_rms_norm_adds_eps_under_the_root",
        ),
        Mistake(
            "eps is forgotten",
            NORM,
            "wide * mx.rsqrt(mean_square + self.eps)",
            "wide * mx.rsqrt(mean_square)",
            "test_task_1_rms_norm_adds_eps_under_the_root",
        ),
        Mistake(
            "the sum of squares instead of their mean",
            NORM,
            "mx.mean(mx.square(wide), axis=-1, keepdims=True)",
            "mx.sum(mx.square(wide), axis=-1, keepdims=True)",
            "test_task_1_rms_norm_divides_by_the_root_mean_square",
        ),
        Mistake(
            "the mean is subtracted first, as in layer norm",
            NORM,
            "        mean_square =",
            "        wide = wide - mx.mean(wide, axis=-1, keepdims=True)\n        mean_square =",
            "test_task_1_rms_norm_divides_by_the_root_mean_square",
        ),
        Mistake(
            "the norm in the precision of the inputs",
            NORM,
            "wide = x.astype(mx.float32)",
            "wide = x",
            "test_task_1_rms_norm_of_half_precision_calculates_in_float32",
        ),
        Mistake(
            "rounded before the weight",
            NORM,
            "(normalised * self.weight.astype(mx.float32)).astype(x.dtype)",
            "normalised.astype(x.dtype) * self.weight.astype(x.dtype)",
            "test_task_1_rms_norm_of_half_precision_calculates_in_float32",
        ),
        Mistake(
            "sigmoid of -x",
            BASICS,
            "return (wide / (1 + mx.exp(-wide))).astype(x.dtype)",
            "return (wide / (1 + mx.exp(wide))).astype(x.dtype)",
            "test_task_2_silu_is_x_times_its_sigmoid",
        ),
        Mistake(
            "the sigmoid alone",
            BASICS,
            "return (wide / (1 + mx.exp(-wide))).astype(x.dtype)",
            "return (1 / (1 + mx.exp(-wide))).astype(x.dtype)",
            "test_task_2_silu_is_x_times_its_sigmoid",
        ),
        Mistake(
            "exp(x) / (1 + exp(x)), which is inf / inf",
            BASICS,
            "return (wide / (1 + mx.exp(-wide))).astype(x.dtype)",
            "return (wide * mx.exp(wide) / (1 + mx.exp(wide))).astype(x.dtype)",
            "test_task_2_silu_of_large_numbers_is_the_number_or_zero",
        ),
        Mistake(
            "the activation is applied to up, not to gate",
            WEIGHTS,
            "return silu_multiply(multiply(x, gate), multiply(x, up))",
            "return silu_multiply(multiply(x, up), multiply(x, gate))",
            "test_task_2_mlp_multiplies_gate_and_up",
        ),
    ),
    "week_1_day_5": (
        Mistake(
            "attention is not added to its input",
            LAYERS,
            "norm=norm, residual=x, last_only=last_only)",
            "norm=norm, residual=None, last_only=last_only)",
            "test_task_1_block_adds_attention_and_feed_forward",
        ),
        Mistake(
            "feed-forward is not added to its input",
            LAYERS,
            "return self.mlp(x, norm=self.post_attention_layernorm, residual=x)",
            "return self.mlp(x, norm=self.post_attention_layernorm)",
            "test_task_1_block_adds_attention_and_feed_forward",
        ),
        Mistake(
            "one norm for both",
            LAYERS,
            "return self.mlp(x, norm=self.post_attention_layernorm, residual=x)",
            "return self.mlp(x, norm=self.input_layernorm, residual=x)",
            "test_task_1_block_adds_attention_and_feed_forward",
        ),
        Mistake(
            "the second norm is forgotten",
            LAYERS,
            "return self.mlp(x, norm=self.post_attention_layernorm, residual=x)",
            "return self.mlp(x, residual=x)",
            "test_task_1_block_adds_attention_and_feed_forward",
        ),
        Mistake(
            "unknown tokens read memory after the table",
            "tiny_llm/embedding.py",
            "return nan_unless(known, self.weight[ids])",
            "return self.weight[ids]",
            "test_task_2_embedding_of_unknown_tokens_is_nan",
        ),
        Mistake(
            "the last norm is forgotten",
            MODEL,
            "        x = self.norm(x)\n",
            "",
            "test_task_3_model_scores_the_next_token",
        ),
        Mistake(
            "the embedding is used as head even if there is a separate head",
            MODEL,
            "return self.embedding.as_linear(x) if self.w_lm_head is None else multiply(x, self.w_lm_head)",
            "return self.embedding.as_linear(x)",
            "test_task_3_model_scores_the_next_token",
        ),
        Mistake(
            "every block leaves out all tokens but the last",
            MODEL,
            "last_of_all = last_only and number == self.num_hidden_layers",
            "last_of_all = last_only",
            "test_task_3_model_computes_the_last_token_only",
        ),
        Mistake(
            "the last block computes all tokens, although only the last one is asked for",
            MODEL,
            "last_of_all = last_only and number == self.num_hidden_layers",
            "last_of_all = False",
            "test_task_3_model_computes_the_last_token_only",
        ),
        Mistake(
            "tokens see later ones",
            MODEL,
            'block.forward(x, offsets, tokens, "causal", last_only=last_of_all)',
            "block.forward(x, offsets, tokens, None, last_only=last_of_all)",
            "test_task_3_model_scores_the_next_token",
        ),
        Mistake(
            "every layer has the weights of the first",
            MODEL,
            "[self._make_block(layer, options) for layer in body.layers]",
            "[self._make_block(body.layers[0], options) for layer in body.layers]",
            "test_task_3_model_scores_the_next_token",
        ),
    ),
}
