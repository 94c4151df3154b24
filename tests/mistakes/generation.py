"""Mistakes in generation, sampling and speculative decoding."""

from .mistake import Mistake, Table

TOKENS = "tiny_llm/generation/tokens.py"
DRAW = "tiny_llm/sampling/draw.py"
SPECULATIVE = "tiny_llm/generation/speculative.py"

MISTAKES: Table = {
    "week_1_day_6": (
        Mistake(
            "only the newest token is read",
            TOKENS,
            "        tokens = mx.concatenate([tokens, token])\n\n\ndef cached_tokens",
            "        tokens = token\n\n\ndef cached_tokens",
            "test_task_1_simple_generate_takes_the_best_token_until_the_end",
        ),
        Mistake(
            "the logits of the first position choose the token",
            "tiny_llm/generation/sequence.py",
            "return model(inputs, *where)[:, -1]",
            "return model(inputs, *where)[:, 0]",
            "test_task_1_simple_generate_takes_the_best_token_until_the_end",
        ),
        Mistake(
            "the end token is printed",
            "tiny_llm/generation/result_builder.py",
            '        if self.at_end_token:\n            return ""\n',
            "",
            "test_task_1_simple_generate_takes_the_best_token_until_the_end",
        ),
        Mistake(
            "the sampler gets logits",
            TOKENS,
            "logits = logits.astype(mx.float32) - logsumexp(logits)",
            "logits = logits.astype(mx.float32)",
            "test_task_1_simple_generate_gives_the_sampler_log_probabilities",
        ),
        Mistake(
            "a piece may end inside a character",
            "tiny_llm/generation/text.py",
            "return text.rstrip(REPLACEMENT_CHARACTER)",
            "return text",
            "test_task_1_simple_generate_takes_the_best_token_until_the_end",
        ),
        Mistake(
            "only the first end token counts",
            "tiny_llm/generation/text.py",
            "return frozenset(several or [tokenizer.eos_token_id])",
            "return frozenset([tokenizer.eos_token_id])",
            "test_task_1_simple_generate_stops_at_any_end_token",
        ),
        Mistake(
            "the context is unlimited",
            "tiny_llm/generation/text.py",
            "room = sys.maxsize if longest is None else longest - prompt_tokens",
            "room = 40",
            "test_task_1_simple_generate_ends_where_the_context_does",
        ),
    ),
    "week_1_day_7": (
        Mistake(
            "scores are multiplied by the temperature",
            DRAW,
            "return ids, (scores - best) / max(sampling.temp, MIN_TEMPERATURE)",
            "return ids, (scores - best) * sampling.temp",
            "test_task_1_temperature_sharpens_and_flattens",
        ),
        Mistake(
            "the temperature is ignored",
            DRAW,
            "return ids, (scores - best) / max(sampling.temp, MIN_TEMPERATURE)",
            "return ids, scores - best",
            "test_task_1_temperature_sharpens_and_flattens",
        ),
        Mistake(
            "top-p drops the token that crosses",
            DRAW,
            "mx.cumsum(mx.exp(descending - total), axis=-1, inclusive=False)",
            "mx.cumsum(mx.exp(descending - total), axis=-1, inclusive=True)",
            "test_task_1_top_p_keeps_the_token_that_crosses",
        ),
        Mistake(
            "top-p keeps one token too many",
            DRAW,
            "mx.logical_or(before < mass - CUMSUM_ERROR, first)",
            "mx.logical_or(before - mx.exp(descending - total) < mass - CUMSUM_ERROR, first)",
            "test_task_1_top_p_keeps_the_token_that_crosses",
        ),
        Mistake(
            "top-k keeps one token too many",
            DRAW,
            "scores, ids = top_k(logits, sampling.top_k)",
            "scores, ids = top_k(logits, sampling.top_k + 1)",
            "test_task_1_top_k_keeps_the_k_most_probable",
        ),
        Mistake(
            "top-p uses the probabilities that top-k left",
            DRAW,
            "mx.where(_nucleus_mask(scores, total, sampling.top_p)",
            "mx.where(_nucleus_mask(scores, mx.logsumexp(scores, axis=-1, keepdims=True), sampling.top_p)",
            "test_task_1_top_p_includes_the_mass_that_top_k_removed",
        ),
        Mistake(
            "scores are used as log probabilities",
            DRAW,
            "total = logsumexp(logits)",
            "total = mx.zeros((*logits.shape[:-1], 1))",
            "test_task_1_scores_are_normalised_and_not_modified",
        ),
    ),
    "week_3_day_4": (
        Mistake(
            "the model keeps rejected drafts",
            SPECULATIVE,
            "            target.rewind(num_drafts - num_accepted)\n",
            "",
            "test_task_1_speculative_output_equals_that_of_the_target_model",
        ),
        Mistake(
            "the draft model keeps rejected drafts",
            SPECULATIVE,
            "                draft.rewind(max(num_drafts - 1 - num_accepted, 0))\n",
            "",
            "test_task_1_rejected_drafts_are_rewound",
        ),
        Mistake(
            "the draft model does not process its own last draft",
            SPECULATIVE,
            "                pending = tokens[-2:]\n",
            "                pending = tokens[-1:]\n",
            "test_task_1_a_perfect_draft_saves_four_of_five_steps",
        ),
        Mistake(
            "all drafts are accepted",
            "tiny_llm/sampling/verify.py",
            "    return mx.cumprod(flags.astype(mx.int32)).sum()",
            "    return mx.ones_like(flags.astype(mx.int32)).sum()",
            "test_task_1_speculative_output_equals_that_of_the_target_model",
        ),
        Mistake(
            "drafts after a wrong one are accepted",
            "tiny_llm/sampling/verify.py",
            "    return mx.cumprod(flags.astype(mx.int32)).sum()",
            "    return flags.astype(mx.int32).sum()",
            "test_task_1_speculative_output_equals_that_of_the_target_model",
        ),
        Mistake(
            "the token after the drafts is dropped",
            SPECULATIVE,
            "    return accepted, best[accepted]",
            "    return accepted, mx.concatenate([draft_ids, best[-1:]])[accepted]",
            "test_task_1_speculative_output_equals_that_of_the_target_model",
        ),
        Mistake(
            "the answer is unlimited",
            "tiny_llm/generation/text.py",
            "return frozenset(several or [tokenizer.eos_token_id])",
            "return frozenset([tokenizer.eos_token_id])",
            "test_task_1_tokens_after_the_end_token_are_dropped",
        ),
        Mistake(
            "one draft at a time",
            "tiny_llm/generate.py",
            "NUM_DRAFT_TOKENS = 4",
            "NUM_DRAFT_TOKENS = 1",
            "test_task_1_a_perfect_draft_saves_four_of_five_steps",
        ),
    ),
}
