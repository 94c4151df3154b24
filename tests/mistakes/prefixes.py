"""Mistakes in pages with several owners, in the search for prefixes, and in copy on write."""

from .mistake import Mistake, Table

PAGES = "tiny_llm/cache/pages.py"
INDEX = "tiny_llm/cache/prefix_index.py"
TABLES = "tiny_llm/scheduler/page_allocator.py"

MISTAKES: Table = {
    "week_4_day_3": (
        Mistake(
            "a page is free when its first owner leaves",
            PAGES,
            "        if self._owners[page] == 0:\n",
            "        if True:\n",
            "test_task_1_a_page_is_used_until_its_last_owner_leaves",
        ),
        Mistake(
            "a kept page is taken while blank ones are left",
            PAGES,
            "        if self._blank:\n",
            "        if self._blank and not self._cached:\n",
            "test_task_1_blank_pages_are_taken_before_kept_ones",
        ),
        Mistake(
            "the page that was kept last is taken first",
            PAGES,
            "            page = next(iter(self._cached))\n",
            "            page = next(reversed(self._cached))\n",
            "test_task_1_blank_pages_are_taken_before_kept_ones",
        ),
        Mistake(
            "every page is kept",
            PAGES,
            "            if keep:\n",
            "            if True:\n",
            "test_task_1_blank_pages_are_taken_before_kept_ones",
        ),
        Mistake(
            "a kept page that is shared again stays free",
            PAGES,
            "        self._cached.pop(page, None)\n",
            "",
            "test_task_1_a_kept_page_can_be_used_again",
        ),
        Mistake(
            "a page goes back twice",
            PAGES,
            "        if self.owners(page) == 0:\n",
            "        if False:\n",
            "test_task_1_wrong_calls_are_refused_and_change_nothing",
        ),
        Mistake(
            "a blank page can be shared",
            PAGES,
            "        if not self.has_content(page):\n",
            "        if False:\n",
            "test_task_1_wrong_calls_are_refused_and_change_nothing",
        ),
        Mistake(
            "a page is named by its own tokens only",
            INDEX,
            "            parent = self._digest(parent + self._content(token_ids, number))\n",
            "            parent = self._digest(self._content(token_ids, number))\n",
            "test_task_2_a_name_is_the_hash_of_the_name_before_and_the_tokens",
        ),
        Mistake(
            "the salt is forgotten",
            INDEX,
            "        parent = keys[-1] if keys else self._root(salt)\n",
            '        parent = keys[-1] if keys else self._root("")\n',
            "test_task_2_a_name_is_the_hash_of_the_name_before_and_the_tokens",
        ),
        Mistake(
            "names that are known are appended again",
            INDEX,
            "        for number in range(len(keys), num_pages):\n",
            "        for number in range(num_pages):\n",
            "test_task_2_known_names_are_not_computed_again",
        ),
        Mistake(
            "the search goes on after a page that is missing",
            INDEX,
            "                break\n",
            "                parent = keys[number]\n                continue\n",
            "test_task_2_the_search_stops_at_the_first_page_that_is_missing",
        ),
        Mistake(
            "more pages are found than were asked for",
            INDEX,
            "        for number in range(num_pages):\n",
            "        for number in range(len(keys)):\n",
            "test_task_2_no_more_pages_are_found_than_asked_for",
        ),
        Mistake(
            "the tokens are not compared",
            INDEX,
            " or entry.content != self._content(token_ids, number)",
            "",
            "test_task_2_equal_names_of_different_texts_find_nothing",
        ),
        Mistake(
            "the name of the page before is not compared",
            INDEX,
            " or entry.parent != parent",
            "",
            "test_task_2_equal_names_of_different_texts_find_nothing",
        ),
        Mistake(
            "a second page with the same text replaces the first",
            INDEX,
            "        if key in self._entries or page in self._keys:\n",
            "        if page in self._keys:\n",
            "test_task_2_a_text_has_one_page_and_a_page_has_one_text",
        ),
        Mistake(
            "pages that are found are not shared, only listed",
            TABLES,
            "            pool.share(page)\n        state.pages.extend(found)\n",
            "            pass\n        state.pages.extend(found)\n",
            "test_task_3_a_known_beginning_is_shared_and_not_computed",
        ),
        Mistake(
            "the tokens of pages that are found are computed again",
            TABLES,
            "        state.computed = len(found) * pool.page_size\n",
            "        state.computed = 0\n",
            "test_task_3_a_known_beginning_is_shared_and_not_computed",
        ),
        Mistake(
            "the whole prompt is taken from the cache",
            TABLES,
            "            num_pages = (total - 1) // pool.page_size\n",
            "            num_pages = total // pool.page_size\n",
            "test_task_3_the_last_token_is_always_computed",
        ),
        Mistake(
            "kept pages that are found still count as free",
            TABLES,
            "        revived = sum(pool.owners(page) == 0 for page in found)\n",
            "        revived = 0\n",
            "test_task_3_a_start_leaves_spare_pages_or_takes_none kept",
        ),
        Mistake(
            "pages that are found are taken after the new ones are allocated",
            TABLES,
            "        for page in found:  # before the first allocation, which could take one of them\n"
            "            pool.share(page)\n"
            "        state.pages.extend(found)\n"
            "        state.computed = len(found) * pool.page_size\n"
            "        state.registered = len(found)\n"
            "        self._allocate(state, new)\n",
            "        self._allocate(state, new)\n"
            "        for page in reversed(found):\n"
            "            pool.share(page)\n"
            "            state.pages.insert(0, page)\n"
            "        state.computed = len(found) * pool.page_size\n"
            "        state.registered = len(found)\n",
            "test_task_3_found_pages_are_taken_before_new_ones",
        ),
        Mistake(
            "a full page is noticed one token too late",
            TABLES,
            "        number = (state.computed + ahead) // self.pool.page_size\n",
            "        number = (state.computed + ahead - 1) // self.pool.page_size\n",
            "test_task_3_a_new_page_is_taken_when_the_last_one_is_full",
        ),
        Mistake(
            "room is made for the next token when it is asked for the one after",
            TABLES,
            "        number = (state.computed + ahead) // self.pool.page_size\n",
            "        number = state.computed // self.pool.page_size\n",
            "test_task_3_a_new_page_is_taken_for_a_token_ahead",
        ),
        Mistake(
            "a shared page is written in place",
            TABLES,
            "        if is_there and self.pool.owners(state.pages[number]) == 1:\n",
            "        if is_there:\n",
            "test_task_3_a_shared_page_is_copied_before_it_is_written",
        ),
        Mistake(
            "the old page keeps an owner that has a copy",
            TABLES,
            "            self._give_back(old)\n",
            "",
            "test_task_3_a_shared_page_is_copied_before_it_is_written",
        ),
        Mistake(
            "the last page is lost, because it is not full",
            TABLES,
            "        self._keep_end(state)\n",
            "",
            "test_task_3_the_end_of_a_prefix_is_given_up_before_its_beginning",
        ),
        Mistake(
            "the computed tokens are forgotten before the end is kept",
            TABLES,
            "        self._keep_end(state)\n",
            "        state.computed = 0\n        self._keep_end(state)\n",
            "test_task_3_the_end_of_a_prefix_is_given_up_before_its_beginning",
        ),
        Mistake(
            "the first page of a prefix is released first",
            TABLES,
            "        while state.pages:\n            self._give_back(state.pages.pop())\n",
            "        while state.pages:\n            self._give_back(state.pages.pop(0))\n",
            "test_task_3_the_end_of_a_prefix_is_given_up_before_its_beginning",
        ),
    ),
}
