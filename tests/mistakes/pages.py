"""Mistakes in pages, block tables and paged attention."""

from .mistake import Mistake, Table

POOL = "tiny_llm/cache/pool.py"
PAGED = "tiny_llm/cache/paged.py"
TABLE = "tiny_llm/cache/page_table.py"
BATCHING = "tiny_llm/cache/batching.py"
MODEL = "tiny_llm/course/stages.py"
ATTENTION = "tiny_llm/ops/paged.py"
LAYER = "tiny_llm/models/cached_attention.py"

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
            "slots are counted as if a page had one",
            POOL,
            "            first = page_id * self.page_size\n",
            "            first = page_id\n",
            "test_task_1_pool_writes_a_slice_of_a_page",
        ),
        Mistake(
            "a write may go on into the next page",
            POOL,
            "            if start < 0 or stop > self.page_size:\n",
            "            if start < 0:\n",
            "test_task_1_pool_refuses_invalid_arguments",
        ),
        Mistake(
            "the table is padded with page 0",
            TABLE,
            'PADDING = array("i", [-1])',
            'PADDING = array("i", [0])',
            "test_task_2_block_table_has_a_row_for_each_request",
        ),
        Mistake(
            "requests without a page have no row",
            TABLE,
            "    for ids in requests:\n",
            "    requests = [ids for ids in requests if ids is not None]\n    for ids in requests:\n",
            "test_task_2_block_table_has_a_row_for_each_request",
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
            "slots are counted in the pages of the request, not of the pool",
            PAGED,
            "            first = self.pages.ids[number] * self.page_size\n",
            "            first = number * self.page_size\n",
            "test_task_2_paged_cache_reads_its_pages_in_their_order",
        ),
        Mistake(
            "rewinding keeps the offset",
            PAGED,
            "        self.offset -= n\n",
            "",
            "test_task_2_paged_cache_rewinds_over_pages",
        ),
        Mistake(
            "each layer has a pool of its own",
            MODEL,
            "return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]",
            "return [TinyKvPagedCache(TinyKvPagedPool()) for _ in range(self.num_hidden_layers)]",
            "test_task_3_model_has_one_pool_for_all_layers",
        ),
        Mistake(
            "all layers have one cache",
            MODEL,
            "return [TinyKvPagedCache(self.page_pool) for _ in range(self.num_hidden_layers)]",
            "return [TinyKvPagedCache(self.page_pool)] * self.num_hidden_layers",
            "test_task_3_model_has_one_pool_for_all_layers",
        ),
        Mistake(
            "the pool has pages of 128 tokens, whatever page_size says",
            MODEL,
            "self.page_pool = TinyKvPagedPool(page_size)",
            "self.page_pool = TinyKvPagedPool()",
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
            "keys and values change places",
            PAGED,
            "            keys, values, self.block_table(max_pages), ",
            "            values, keys, self.block_table(max_pages), ",
            "test_task_1_metadata_of_one_request",
        ),
        Mistake(
            "the table is as wide as the request has pages, whatever max_pages says",
            PAGED,
            "self.block_table(max_pages), self.context_lens()",
            "self.block_table(), self.context_lens()",
            "test_task_1_metadata_of_one_request",
        ),
        Mistake(
            "the metadata has no mask",
            PAGED,
            "return self.paged_metadata(mask=mask)",
            "return self.paged_metadata()",
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
            "the mask is not passed on",
            ATTENTION,
            "page_size, scale, mask, options)\n    out, lse =",
            "page_size, scale, None, options)\n    out, lse =",
            "test_task_2_paged_attention_aligns_the_last_query_with_the_last_token",
        ),
        Mistake(
            "the scale is not passed on",
            ATTENTION,
            "page_size, scale, mask, options)\n    out, lse =",
            "page_size, None, mask, options)\n    out, lse =",
            "test_task_2_paged_attention_equals_attention_on_gathered_tokens",
        ),
        Mistake(
            "pages are read in the order of their ids",
            ATTENTION,
            "value_pages, block_table, context_lens), native, copied_bytes)",
            "value_pages, mx.sort(block_table, axis=1), context_lens), native, copied_bytes)",
            "test_task_2_paged_attention_follows_the_table",
        ),
        Mistake(
            "all slots of the table count as tokens",
            ATTENTION,
            "block_table, context_lens), native, copied_bytes)",
            "block_table, mx.full(context_lens.shape, block_table.shape[1] * key_pages.shape[2], "
            "mx.int32)), native, copied_bytes)",
            "test_task_2_paged_attention_ends_with_the_context",
        ),
        Mistake(
            "the causal mask is forgotten",
            ATTENTION,
            'native.get("causal", False) or mask == "causal"',
            'native.get("causal", False)',
            "test_task_2_paged_attention_aligns_the_last_query_with_the_last_token",
        ),
        Mistake(
            "keys go into pages before they are rotated",
            LAYER,
            "    query, key, value = qkv.heads_first()\n    paged =",
            "    query, key, value = qkv.heads_first()\n    key = qkv.key.swapaxes(1, 2)\n    paged =",
            "test_task_3_model_on_pages_equals_the_one_on_dense_caches",
        ),
        Mistake(
            "every query of a prompt sees all of it",
            LAYER,
            "        mask=paged.mask,\n",
            "",
            "test_task_3_model_on_pages_equals_the_one_on_dense_caches",
        ),
        Mistake(
            "a query sees only the tokens of its chunk",
            LAYER,
            "        paged.context_lens,\n",
            "        mx.full(paged.context_lens.shape, query.shape[2], dtype=mx.int32),\n",
            "test_task_3_model_on_pages_equals_the_one_on_dense_caches",
        ),
        Mistake(
            "heads are joined without being moved after the tokens",
            LAYER,
            "    return _join_heads(attended)\n",
            "    return attended.reshape(*qkv.query.shape[:2], -1)\n",
            "test_task_3_model_on_pages_equals_the_one_on_dense_caches",
        ),
        Mistake(
            "all requests of a batch read the pages of the first",
            LAYER,
            "        paged.block_table,\n",
            "        mx.broadcast_to(paged.block_table[:1], paged.block_table.shape),\n",
            "test_task_3_model_decodes_a_batch_on_pages",
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
