"""Mistakes in pages, block tables and paged attention."""

from .mistake import Mistake, Table

POOL = "tiny_llm/cache/pool.py"
PAGED = "tiny_llm/cache/paged.py"
TABLE = "tiny_llm/cache/page_table.py"
BATCHING = "tiny_llm/cache/batching.py"

MISTAKES: Table = {
    "week_3_day_1": (
        Mistake(
            "freed pages are never reused",
            POOL,
            "        if self.free_page_ids:\n",
            "        if False:\n",
            "test_task_1_pool_allocates_and_frees_pages",
        ),
        Mistake(
            "a freed page stays in use",
            POOL,
            "            self.used_page_ids.remove(page_id)\n",
            "",
            "test_task_1_pool_allocates_and_frees_pages",
        ),
        Mistake(
            "a page may be freed twice",
            POOL,
            "            self._check_used(page_id)\n            self.used_page_ids.remove(page_id)\n",
            "            self.used_page_ids.discard(page_id)\n",
            "test_task_1_pool_refuses_invalid_arguments",
        ),
        Mistake(
            "a write begins at the first slot of its page",
            POOL,
            'array("q", range(first + start, first + stop))',
            'array("q", range(first, first + stop - start))',
            "test_task_1_pool_writes_a_slice_of_a_page",
        ),
        Mistake(
            "every call takes a new page",
            PAGED,
            "        while count > 0:\n",
            "        self.pages.append(self.pool.allocate_page())\n        self.page_lens.append(0)\n"
            "        while count > 0:\n",
            "test_task_2_paged_cache_returns_all_tokens",
        ),
        Mistake(
            "a page takes one token too few",
            PAGED,
            "            if not self.pages or self.page_lens[-1] == self.page_size:\n",
            "            if not self.pages or self.page_lens[-1] >= max(self.page_size - 1, 1):\n",
            "test_task_2_paged_cache_returns_all_tokens",
        ),
        Mistake(
            "tokens are written to the first slots of the last page",
            PAGED,
            "slots.extend(range(first + start, first + stop))",
            "slots.extend(range(first, first + stop - start))",
            "test_task_2_paged_cache_returns_all_tokens",
        ),
        Mistake(
            "rewinding keeps the pages",
            PAGED,
            "                self.pool.free_page(self.pages.pop())\n",
            "                self.pages.pop()\n",
            "test_task_2_paged_cache_rewinds_over_pages",
        ),
        Mistake(
            "rewinding drops the whole last page",
            PAGED,
            "            self.page_lens[-1] -= dropped\n",
            "            self.page_lens[-1] = 0\n",
            "test_task_2_paged_cache_rewinds_over_pages",
        ),
        Mistake(
            "free slots are gathered, too",
            PAGED,
            "return mx.flatten(pages.swapaxes(0, 1), 1, 2)[None, :, : self.offset]",
            "return mx.flatten(pages.swapaxes(0, 1), 1, 2)[None]",
            "test_task_2_paged_cache_returns_all_tokens",
        ),
        Mistake(
            "pages are gathered in the order of their ids",
            PAGED,
            "        pages = self.block_table()[0]\n",
            "        pages = mx.sort(self.block_table()[0])\n",
            "test_task_2_paged_cache_reads_its_pages_in_their_order",
        ),
        Mistake(
            "each layer has a pool of its own",
            "tiny_llm/course/week3.py",
            "return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]",
            "return [TinyKvPagedCache(TinyKvPagedPool()) for _ in range(self.num_hidden_layers)]",
            "test_task_3_model_has_one_pool_for_all_layers",
        ),
    ),
    "week_3_day_2": (
        Mistake(
            "the context excludes the new tokens",
            PAGED,
            "        self.append(key, value)\n        return self.paged_metadata(mask=mask)\n",
            "        before = mx.array([self.offset], dtype=mx.int32)\n"
            "        self.append(key, value)\n"
            "        metadata = self.paged_metadata(mask=mask)\n"
            "        metadata.context_lens = before\n"
            "        return metadata\n",
            "test_task_1_metadata_of_one_request",
        ),
        Mistake(
            "the table is padded with page 0",
            TABLE,
            'PADDING = array("i", [-1])',
            'PADDING = array("i", [0])',
            "test_task_1_metadata_of_one_request",
        ),
        Mistake(
            "the context counts pages",
            BATCHING,
            "lengths = [0 if row is None else row.offset for row in rows]",
            "lengths = [0 if row is None else row.num_pages for row in rows]",
            "test_task_1_metadata_of_a_batch",
        ),
        Mistake(
            "idle slots are missing from the table",
            BATCHING,
            "rows = [paged.get(slot) for slot in range(self.max_active_requests)]",
            "rows = list(paged.values())",
            "test_task_1_metadata_of_a_batch",
        ),
        Mistake(
            "pages are read in the order of their ids",
            "tiny_llm/ops/paged.py",
            "value_pages, block_table, context_lens), native, copied_bytes)",
            "value_pages, mx.sort(block_table, axis=1), context_lens), native, copied_bytes)",
            "test_task_2_paged_attention_follows_the_table",
        ),
        Mistake(
            "all slots of the table count as tokens",
            "tiny_llm/ops/paged.py",
            "block_table, context_lens), native, copied_bytes)",
            "block_table, mx.full(context_lens.shape, block_table.shape[1] * key_pages.shape[2], "
            "mx.int32)), native, copied_bytes)",
            "test_task_2_paged_attention_ends_with_the_context",
        ),
        Mistake(
            "the causal mask is forgotten",
            "tiny_llm/ops/paged.py",
            'native.get("causal", False) or mask == "causal"',
            'native.get("causal", False)',
            "test_task_2_paged_attention_aligns_the_last_query_with_the_last_token",
        ),
        Mistake(
            "a request that leaves keeps its pages",
            PAGED,
            "        self.rewind(self.offset)\n",
            "        self.offset = 0\n",
            "test_task_4_batch_generate_on_pages_answers_each_prompt_as_if_alone",
        ),
    ),
}
