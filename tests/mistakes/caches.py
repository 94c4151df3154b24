"""Mistakes in caches, alone and in batches."""

from .mistake import Mistake, Table

FULL = "tiny_llm/cache/full.py"
BATCHING = "tiny_llm/cache/batching.py"
REQUEST = "tiny_llm/generation/request.py"
ROUNDS = "tiny_llm/generation/batching.py"
ATTENTION = "tiny_llm/attention.py"
TOKENS = "tiny_llm/generation/tokens.py"
SEQUENCE = "tiny_llm/generation/sequence.py"
STARTS = "qkv = QKV(*self.project(x, norm), self.rope, row_offsets(offset, rows=x.shape[0]))"

MISTAKES: Table = {
    "week_2_day_1": (
        Mistake(
            "the cache keeps the newest tokens only",
            FULL,
            "return keys[:, :, :end], values[:, :, :end], end, mask",
            "return key, value, end, mask",
            "test_task_1_full_cache_returns_all_tokens",
        ),
        Mistake(
            "the free space after the tokens is returned, too",
            FULL,
            "return keys[:, :, :end], values[:, :, :end], end, mask",
            "return keys, values, end, mask",
            "test_task_1_full_cache_returns_all_tokens",
        ),
        Mistake(
            "the offset counts calls",
            FULL,
            "        self.offset += num_new_tokens\n",
            "        self.offset += 1\n",
            "test_task_1_full_cache_returns_all_tokens",
        ),
        Mistake(
            "values are stored as keys",
            FULL,
            "        values[:, :, self.offset : end] = value\n",
            "        values[:, :, self.offset : end] = key\n",
            "test_task_1_full_cache_returns_all_tokens",
        ),
        Mistake(
            "rewinding drops one token too few",
            FULL,
            "        self.offset -= n\n",
            "        self.offset -= max(n - 1, 0)\n",
            "test_task_1_full_cache_rewinds_the_newest_tokens",
        ),
        Mistake(
            "each token is appended to a copy",
            FULL,
            "map(copy, self.reserve(key.shape, key.dtype)[:2])",
            "(mx.concatenate([x, x[:, :, :0]], axis=2) for x in self.reserve(key.shape, key.dtype)[:2])",
            "test_task_1_full_cache_appends_in_place",
        ),
        Mistake(
            "a copy of the cache shares the arrays that are written to",
            FULL,
            "map(copy, self.reserve(key.shape, key.dtype)[:2])",
            "self.reserve(key.shape, key.dtype)[:2]",
            "test_task_1_full_cache_does_not_change_its_copy",
        ),
        Mistake(
            "new tokens are rotated from position 0",
            "tiny_llm/models/layers.py",
            STARTS,
            STARTS.replace("row_offsets(offset, rows=x.shape[0])", "0"),
            "test_task_2_attention_layer_continues_where_its_cache_ends",
        ),
        Mistake(
            "new tokens are rotated by the length of the cache that includes them",
            "tiny_llm/models/layers.py",
            STARTS,
            STARTS.replace(
                "row_offsets(offset, rows=x.shape[0])",
                "row_offsets(offset + x.shape[1] if isinstance(offset, int) else offset, rows=x.shape[0])",
            ),
            "test_task_2_attention_layer_continues_where_its_cache_ends",
        ),
        Mistake(
            "all layers share a cache",
            "tiny_llm/course/stages.py",
            "return [TinyKvFullCache() for _ in range(self.num_hidden_layers)]",
            "return [TinyKvFullCache()] * self.num_hidden_layers",
            "test_task_3_model_prefills_a_prompt",
        ),
        Mistake(
            "decoding begins with the last token of the prompt again",
            TOKENS,
            "    token = sampler.sample(sequence.step(token))\n    ahead",
            "    token = sampler.sample(sequence.step(mx.array(prompt[-1:])))\n    ahead",
            "test_task_4_simple_generate_with_kv_cache_equals_simple_generate",
        ),
        Mistake(
            "the offset stays at the end of the prompt",
            SEQUENCE,
            "        logits = next_logits(self.model, ids[None], self.offset, self.cache)\n"
            "        self.offset += ids.size\n",
            "        logits = next_logits(self.model, ids[None], self.offset, self.cache)\n"
            "        self.offset += ids.size if ids.size > 1 else 0\n",
            "test_task_4_simple_generate_with_kv_cache_equals_simple_generate",
        ),
        Mistake(
            "the whole text is read at each step",
            SEQUENCE,
            "        for start in range(0, last, step):\n",
            "        last = len(prompt) - 1\n        for start in range(last):\n            step = 1\n",
            "test_task_4_simple_generate_with_kv_cache_computes_each_token_once",
        ),
        Mistake(
            "caches are kept after the answer",
            SEQUENCE,
            "        for layer in self.cache:\n            layer.release()\n",
            "        pass\n",
            "test_task_4_simple_generate_with_kv_cache_releases_its_caches",
        ),
    ),
    "week_2_day_6": (
        Mistake(
            "every row has the offset of the first",
            "tiny_llm/positional_encoding.py",
            "return [self._span(positions, length) for positions in offset]",
            "return [self._span(positions, length) for positions in offset][:1]",
            "test_task_1_rope_with_an_offset_for_each_row",
        ),
        Mistake(
            "causal attention with the offset of equal lengths",
            ATTENTION,
            "        mask = causal_mask(L, S, mx.float32)\n",
            "        mask = causal_mask(S, S, mx.float32)[:L]\n",
            "test_task_1_attention_of_a_chunk_to_earlier_tokens",
        ),
        Mistake(
            "shorter rows are padded on the right",
            BATCHING,
            "(longest - row.shape[2], 0)",
            "(0, longest - row.shape[2])",
            "test_task_2_batching_cache_aligns_its_rows_at_the_right",
        ),
        Mistake(
            "the padding is not hidden",
            BATCHING,
            "return mx.where(past & token, 0.0, -mx.inf).astype(dtype)",
            "return mx.where(past | ~token, 0.0, -mx.inf).astype(dtype)",
            "test_task_2_batching_cache_aligns_its_rows_at_the_right",
        ),
        Mistake(
            "new tokens see later ones",
            BATCHING,
            "return mx.where(past & token, 0.0, -mx.inf).astype(dtype)",
            "return mx.where((past | True) & token, 0.0, -mx.inf).astype(dtype)",
            "test_task_2_batching_cache_aligns_its_rows_at_the_right",
        ),
        Mistake(
            "a request that leaves keeps its cache",
            BATCHING,
            "        self.kv_caches[id] = None\n        cache.release()\n",
            "        self.kv_caches[id] = None\n",
            "test_task_2_batching_cache_adds_and_removes_requests",
        ),
        Mistake(
            "all requests have the position of the first",
            "tiny_llm/models/qkv.py",
            "    return offsets[0] if len(set(offsets)) == 1 else offsets",
            "    return offsets[0]",
            "test_task_3_model_on_a_batch_of_requests_of_different_lengths",
        ),
        Mistake(
            "the last prompt is lost when no request decodes",
            ROUNDS,
            "while waiting or prefilling or batch.active:",
            "while waiting or batch.active:",
            "test_task_4_batch_generate_answers_each_prompt_as_if_alone",
        ),
        Mistake(
            "results are in the order of completion",
            ROUNDS,
            "done = sorted(batch.done, key=lambda request: request.prompt_idx)",
            "done = batch.done",
            "test_task_4_batch_generate_answers_each_prompt_as_if_alone",
        ),
        Mistake(
            "a request may hold one token too many",
            ROUNDS,
            "if not request.is_done and request.offset >= self._max_seq_len:",
            "if not request.is_done and request.offset > self._max_seq_len:",
            "test_task_4_batch_generate_ends_a_request_at_max_seq_len",
        ),
        Mistake(
            "the first token counts as one of the cache",
            REQUEST,
            "self.decode_done(self.sampler.result(self.sampler.sample(logits)), update_offset=False)",
            "self.decode_done(self.sampler.result(self.sampler.sample(logits)))",
            "test_task_5_a_request_prefills_its_prompt_in_chunks",
        ),
        Mistake(
            "every chunk has offset 0",
            REQUEST,
            "logits = next_logits(self.model, chunk[None], [self.offset], self.kv_cache)",
            "logits = next_logits(self.model, chunk[None], [0], self.kv_cache)",
            "test_task_5_a_request_prefills_its_prompt_in_chunks",
        ),
    ),
}
