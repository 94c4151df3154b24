"""Mistakes in the numbers of a seeded answer, in drafts from the text, and in a step of rows."""

from .mistake import Mistake, Table

NUMBERS = "tiny_llm/sampling/row_sampler.py"
LOOKUP = "tiny_llm/engine/drafts.py"
STEP = "tiny_llm/sampling/row_step.py"

KEY = '    key = struct.pack("<qqqB", seed, choice, index, purpose)\n'
DIGEST = "    digest = hashlib.blake2b(key, digest_size=4).digest()\n"
NUMBER = '    return (int.from_bytes(digest, "little") >> 8) / 2**24  # exact in float32\n'

MISTAKES: Table = {
    "week_4_day_5": (
        Mistake(
            "a number has more bits than float32",
            NUMBERS,
            NUMBER,
            '    return int.from_bytes(digest, "little") / 2**32\n',
            "test_task_1_numbers_are_at_least_0_below_1_and_exact_in_float32",
        ),
        Mistake(
            "all answers to a prompt use one number",
            NUMBERS,
            KEY,
            KEY.replace("choice, ", "0, "),
            "test_task_1_every_argument_counts",
        ),
        Mistake(
            "the number that proposes a draft also decides about it",
            NUMBERS,
            KEY,
            KEY.replace("purpose", "0"),
            "test_task_1_every_argument_counts",
        ),
        Mistake(
            "digits of the arguments run into each other",
            NUMBERS,
            KEY,
            '    key = f"{seed}{choice}{index}{purpose}".encode()\n',
            "test_task_1_every_argument_counts",
        ),
        Mistake(
            "a constant is added for each token, and only the rest is hashed",
            NUMBERS,
            KEY + DIGEST + NUMBER,
            KEY.replace("index", "0")
            + DIGEST
            + '    return (int.from_bytes(digest, "little") + index * 1000003) % 2**24 / 2**24\n',
            "test_task_1_numbers_are_uniform_along_each_argument",
        ),
        Mistake(
            "the generator of all is seeded for each number",
            NUMBERS,
            DIGEST + NUMBER,
            "    import random\n\n    random.seed(key)\n    return random.getrandbits(24) / 2**24\n",
            "test_task_1_there_is_no_state",
        ),
        Mistake(
            "Python's hash of a text differs between processes",
            NUMBERS,
            KEY + DIGEST + NUMBER,
            '    return hash(f"{seed} {choice} {index} {purpose}") % 2**24 / 2**24\n',
            "test_task_1_another_process_gets_the_same_number",
        ),
        Mistake(
            "the newest tokens find themselves",
            LOOKUP,
            "        for end in range(max(self._indexed, size), stop):",
            "        for end in range(max(self._indexed, size), stop + 1):",
            "test_task_2_what_followed_the_newest_three_tokens_is_drafted",
        ),
        Mistake(
            "drafts begin with the tokens that were found",
            LOOKUP,
            "token_ids[found : found + count]",
            "token_ids[found - size : found - size + count]",
            "test_task_2_what_followed_the_newest_three_tokens_is_drafted",
        ),
        Mistake(
            "the first place counts",
            LOOKUP,
            "            self._last_end[tuple(token_ids[end - size : end])] = end\n",
            "            self._last_end.setdefault(tuple(token_ids[end - size : end]), end)\n",
            "test_task_2_the_last_place_counts",
        ),
        Mistake(
            "drafts end with the text",
            LOOKUP,
            "        return list(islice(cycle(token_ids[found : found + count]), count))\n",
            "        return token_ids[found : found + count]\n",
            "test_task_2_a_repetition_goes_on",
        ),
        Mistake(
            "drafts are always as many as possible",
            LOOKUP,
            "        count = min(LENGTHS[self._length], self._most_drafts)\n",
            "        count = self._most_drafts\n",
            "test_task_2_what_followed_the_newest_three_tokens_is_drafted",
        ),
        Mistake(
            "what spans two steps is not found",
            LOOKUP,
            "        for end in range(max(self._indexed, size), stop):",
            "        for end in range(self._indexed + size, stop):",
            "test_task_2_a_growing_text_is_searched_like_a_whole_one",
        ),
        Mistake(
            "a long prompt is read at once",
            LOOKUP,
            "        stop = min(total, self._indexed + MOST_INDEXED)\n",
            "        stop = total\n",
            "test_task_2_a_long_prompt_is_read_in_parts",
        ),
        Mistake(
            "the rest of a long prompt is never read",
            LOOKUP,
            "        self._indexed = stop\n",
            "        self._indexed = total\n",
            "test_task_2_a_long_prompt_is_read_in_parts",
        ),
        Mistake(
            "a pause has no end",
            LOOKUP,
            "            self._off -= 1\n            return ()\n",
            "            return ()\n",
            "test_task_2_after_two_wrong_drafts_there_is_a_pause",
        ),
        Mistake(
            "all positions of a row use its first number",
            STEP,
            "numbers = [self._rows[row].uniform(place) for row, place in places]",
            "numbers = [self._rows[row].uniform(0) for row, place in places]",
            "test_task_3_each_position_has_its_own_number",
        ),
        Mistake(
            "all rows with a temperature use the filters of the first one",
            STEP,
            "            groups[self._rows[row].changes_logits, *filters].append(row)\n",
            "            groups[self._rows[row].changes_logits, filters[0] > 0].append(row)\n",
            "test_task_3_rows_keep_their_own_filters",
        ),
        Mistake(
            "each row is drawn alone",
            STEP,
            "            groups[self._rows[row].changes_logits, *filters].append(row)\n",
            "            groups[row, *filters].append(row)\n",
            "test_task_3_rows_with_equal_filters_are_drawn_together",
        ),
        Mistake(
            "penalties and biases are forgotten",
            STEP,
            "            scores, sampling = self._scores(members), self._rows[members[0]].sampling\n",
            "            members_at = [at for row in members for at in self._positions[row]]\n"
            "            scores = _take(self._logits, members_at)\n"
            "            sampling = self._rows[members[0]].sampling\n",
            "test_task_3_greedy_rows_take_the_best_token_at_each_position",
        ),
        Mistake(
            "a right draft after a wrong one is kept",
            STEP,
            "            if not is_accepted or token in endings:\n",
            "            if token in endings:\n",
            "test_task_3_drafts_are_kept_up_to_the_first_wrong_one",
        ),
        Mistake(
            "the model's own token after a wrong draft is lost",
            STEP,
            "                return positions[: place + 1]\n",
            "                return positions[:place]\n",
            "test_task_3_drafts_are_kept_up_to_the_first_wrong_one",
        ),
        Mistake(
            "drafts beyond an end token are kept",
            STEP,
            "            if not is_accepted or token in endings:\n",
            "            if not is_accepted:\n",
            "test_task_3_nothing_follows_an_end_token",
        ),
    ),
}
