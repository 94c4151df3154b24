"""Mistakes in the masks of grammars, in grammars that move with drafts, and in tags of a stream."""

from .mistake import Mistake, Table

MASKS = "tiny_llm/sampling/grammar/state.py"
STATE = "tiny_llm/sampling/grammar/state.py"
ROW = "tiny_llm/sampling/row_sampler.py"
PIECES = "tiny_llm/server/api/pieces.py"

MISTAKES: Table = {
    "week_4_day_6": (
        Mistake(
            "the highest bit of a byte comes first",
            MASKS,
            "[2**bit for bit in range(8)]",
            "[2**bit for bit in reversed(range(8))]",
            "test_task_1_a_token_whose_bit_is_0_gets_minus_infinity",
        ),
        Mistake(
            "what is allowed is forbidden",
            MASKS,
            "mx.where(bits == 1, 0.0, -mx.inf)",
            "mx.where(bits == 0, 0.0, -mx.inf)",
            "test_task_1_a_token_whose_bit_is_0_gets_minus_infinity",
        ),
        Mistake(
            "a product with infinity makes NaN of zeros",
            MASKS,
            "mx.where(bits == 1, 0.0, -mx.inf)",
            "(1 - bits) * -mx.inf",
            "test_task_1_a_token_whose_bit_is_0_gets_minus_infinity",
        ),
        Mistake(
            "a row without a mask allows nothing",
            MASKS,
            r'b"\xff" * size if mask is None',
            r'b"\0" * size if mask is None',
            "test_task_1_each_row_has_its_own_mask",
        ),
        Mistake(
            "bits that are missing allow the padding of the vocabulary",
            MASKS,
            r'.ljust(size, b"\0")',
            r'.ljust(size, b"\xff")',
            "test_task_1_bits_that_are_missing_are_0",
        ),
        Mistake(
            "a mask that is too long shifts the rows after it",
            MASKS,
            r'mask[:size].ljust(size, b"\0")',
            r'mask.ljust(size, b"\0")',
            "test_task_1_bits_that_are_missing_are_0",
        ),
        Mistake(
            "the result has the type of the logits",
            MASKS,
            "    return logits + added[:, :vocabulary]\n",
            "    return logits + added[:, :vocabulary].astype(logits.dtype)\n",
            "test_task_1_the_result_is_float32",
        ),
        Mistake(
            "tokens that were tried stay",
            STATE,
            "            self.rollback(trial.added)\n",
            "            pass\n",
            "test_task_2_tokens_that_are_tried_are_removed",
        ),
        Mistake(
            "only the newest of the tried tokens is removed",
            STATE,
            "            self.rollback(trial.added)\n",
            "            self.rollback(1)\n",
            "test_task_2_tokens_that_are_tried_are_removed",
        ),
        Mistake(
            "after an error tokens that were tried stay",
            STATE,
            "        try:\n            yield trial\n        finally:\n"
            "            self.rollback(trial.added)\n",
            "        yield trial\n        self.rollback(trial.added)\n",
            "test_task_2_tokens_that_are_tried_are_removed_after_an_error_too",
        ),
        Mistake(
            "drafts are not consumed before the next mask",
            ROW,
            "                if place < valid:\n"
            "                    state.accept(drafts[place : place + 1])\n",
            "",
            "test_task_2_each_mask_is_for_the_text_with_the_drafts_before_it",
        ),
        Mistake(
            "drafts are consumed by the row",
            ROW,
            "                    state.accept(drafts[place : place + 1])\n",
            "                    self.grammar.accept(drafts[place : place + 1])\n",
            "test_task_2_each_mask_is_for_the_text_with_the_drafts_before_it",
        ),
        Mistake(
            "the mask after the last draft is missing",
            ROW,
            "            for place in range(valid + 1):\n",
            "            for place in range(min(valid + 1, max(len(drafts), 1))):\n",
            "test_task_2_each_mask_is_for_the_text_with_the_drafts_before_it",
        ),
        Mistake(
            "a draft that is not allowed is an error",
            ROW,
            "        valid = self.grammar.count_valid(drafts) if drafts else 0\n",
            "        valid = len(drafts)\n",
            "test_task_2_after_a_draft_that_is_not_allowed_there_are_no_masks",
        ),
        Mistake(
            "the least length does not count drafts",
            ROW,
            "                masks[place] = state.allowed(self._held_back(place))\n",
            "                masks[place] = state.allowed(self._held_back(0))\n",
            "test_task_2_end_tokens_are_held_back_by_the_length_with_drafts",
        ),
        Mistake(
            "space before a tag is kept",
            PIECES,
            "        return before.rstrip(), True, after\n",
            "        return before, True, after\n",
            "test_task_3_a_tag_divides_the_text",
        ),
        Mistake(
            "the last tag counts",
            PIECES,
            "    before, tag_found, after = text.partition(tag)\n",
            "    before, tag_found, after = text.rpartition(tag)\n",
            "test_task_3_a_tag_divides_the_text",
        ),
        Mistake(
            "a tag is looked for in each piece alone",
            PIECES,
            "    begun = next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) "
            "if text.endswith(tag[:n])), 0)\n",
            "    begun = 0\n",
            "test_task_3_what_may_be_the_beginning_of_a_tag_is_held_back",
        ),
        Mistake(
            "all text after the last < is held back",
            PIECES,
            "    begun = next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) "
            "if text.endswith(tag[:n])), 0)\n",
            "    begun = len(text) - text.rfind(tag[0]) if tag[0] in text else 0\n",
            "test_task_3_what_may_be_the_beginning_of_a_tag_is_held_back",
        ),
        Mistake(
            "space that a tag would drop is sent",
            PIECES,
            "    certain = text[: len(text) - begun].rstrip()\n",
            "    certain = text[: len(text) - begun]\n",
            "test_task_3_what_may_be_the_beginning_of_a_tag_is_held_back",
        ),
        Mistake(
            "the end of an answer is held back for ever",
            PIECES,
            '    if final:\n        return text, False, ""\n    begun',
            "    begun",
            "test_task_3_what_may_be_the_beginning_of_a_tag_is_held_back",
        ),
        Mistake(
            "the shortest beginning is held back",
            PIECES,
            "range(min(len(tag) - 1, len(text)), 0, -1)",
            "range(1, min(len(tag) - 1, len(text)) + 1)",
            "test_task_3_the_longest_beginning_is_held_back",
        ),
        Mistake(
            "space is held back without a limit",
            PIECES,
            "    if len(text) - len(certain) > MAX_SPACE:\n        certain = text[: len(text) - begun]\n",
            "",
            "test_task_3_much_space_is_not_held_back",
        ),
    ),
}
