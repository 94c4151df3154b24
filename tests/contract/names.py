"""The public names that must not change, because chapters, scripts and other programs use them."""

# module.name(parameters): more parameters may follow, by keyword only and with a default.
SIGNATURES = """basics.softmax(x, axis)
basics.linear(x, w, bias=None)
basics.silu(x)
embedding.Embedding(vocab_size, embedding_dim, weight)
layer_norm.RMSNorm(dim, weight, eps=1e-05)
positional_encoding.RoPE(dims, seq_len, base=10000, traditional=False)
attention.scaled_dot_product_attention_simple(query, key, value, scale=None, mask=None)
attention.causal_mask(L, S, dtype)
attention.scaled_dot_product_attention_grouped(query, key, value, scale=None, mask=None)
attention.flash_attention(query, key, value, scale=None, mask=None)
attention.flash_attention_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k=None, \
scale=None, mask=None)
attention.flash_attention_prefill(q, k, v, cu_seqlens, scale, num_heads, num_kv_heads, head_dim, \
cu_seqlens_k=None)
attention.attention_reference(query, key, value, scale=None, mask=None)
attention.explain(function)
attention.merge_lse(o1, lse1, o2, lse2)
attention.paged_attention(query, key_pages, value_pages, block_table, context_lens=None, page_size=None, \
scale=None, mask=None)
attention.paged_attention_decode(query, k_cache, v_cache, block_tables, context_lens, scale, num_heads, \
num_kv_heads, head_dim, block_size=None)
attention.store_kvcache(key, value, k_cache, v_cache, slot_mapping, block_size=None)
attention.SimpleMultiHeadAttention(hidden_size, num_heads, wq, wk, wv, wo)
quantize.QuantizedWeights(scales, biases, group_size, bits, weight)
quantize.QuantizedWeights.from_mlx_layer(mlx_layer)
quantize.quantized_linear(x, w, bias=None)
quantize.dequantize_linear(mlx_layer)
quantize.quantized_matmul(scales, biases, group_size, bits, a, b, transpose_b=False)
kv_cache.TinyKvCache.update_and_fetch(self, key, value, mask_length=None, mask=None)
kv_cache.TinyKvCache.update_and_fetch_paged(self, key, value, mask_length=None, mask=None)
kv_cache.TinyKvCache.rewind(self, n)
kv_cache.TinyKvCache.release(self)
kv_cache.TinyKvFullCache()
kv_cache.TinyKvFullCache.update_and_fetch(self, key, value, mask_length=None, mask=None)
kv_cache.BatchingKvCache(max_active_requests, max_seq_len)
kv_cache.BatchingKvCache.update_and_fetch(self, keys, values, mask_length=None, mask=None)
kv_cache.BatchingKvCache.update_and_fetch_paged(self, keys, values, mask_length=None, mask=None)
kv_cache.BatchingKvCache.add_request(self, prefilled, id)
kv_cache.BatchingKvCache.remove_request(self, id)
paged_kv_cache.PagedKvMetadata(key_pages, value_pages, block_table, context_lens, page_size, mask=None)
paged_kv_cache.TinyKvPagedPool(page_size=128)
paged_kv_cache.TinyKvPagedPool.allocate_page(self)
paged_kv_cache.TinyKvPagedPool.read_page(self, page_id)
paged_kv_cache.TinyKvPagedPool.write_page_slice(self, page_id, start, key, value)
paged_kv_cache.TinyKvPagedPool.free_page(self, page_id)
paged_kv_cache.TinyKvPagedCache(pool)
paged_kv_cache.TinyKvPagedCache.update_and_fetch(self, key, value, mask_length=None, mask=None)
paged_kv_cache.TinyKvPagedCache.update_and_fetch_paged(self, key, value, mask_length=None, mask=None)
paged_kv_cache.TinyKvPagedCache.gather_dense(self)
paged_kv_cache.TinyKvPagedCache.block_table(self, max_pages=None)
paged_kv_cache.TinyKvPagedCache.context_lens(self)
paged_kv_cache.TinyKvPagedCache.paged_metadata(self, max_pages=None, mask=None)
paged_kv_cache.TinyKvPagedCache.rewind(self, n)
paged_kv_cache.TinyKvPagedCache.release(self)
models.shortcut_name_to_full_name(shortcut_name)
models.dispatch_model(model_name, mlx_model, week)
qwen2_week1.Qwen2ModelWeek1(mlx_model)
qwen2_week1.Qwen2ModelWeek1.__call__(self, inputs)
qwen2_week2.Qwen2ModelWeek2(mlx_model, enable_flash_attn=False)
qwen2_week2.Qwen2ModelWeek2.create_kv_cache(self)
qwen2_week2.Qwen2ModelWeek2.__call__(self, inputs, offset, cache)
qwen2_week3.Qwen2ModelWeek3(mlx_model, page_size=128)
qwen2_week3.Qwen2ModelWeek3.create_kv_cache(self)
qwen2_week3.Qwen2ModelWeek3.__call__(self, inputs, offset, cache)
qwen3.Qwen3ModelWeek1(mlx_model)
qwen3.Qwen3Model(mlx_model, enable_flash_attn=False)
qwen3.Qwen3Model.create_kv_cache(self)
qwen3.Qwen3Model.__call__(self, inputs, offset, cache)
qwen3.Qwen3ModelWeek3(mlx_model, page_size=128)
qwen3.Qwen3ModelWeek3.create_kv_cache(self)
generate.simple_generate(model, tokenizer, prompt, sampler)
generate.simple_generate_with_kv_cache(model, tokenizer, prompt)
generate.speculative_generate(draft_model, model, draft_tokenizer, tokenizer, prompt)
batch.Request(model, tokenizer, prompt, prefill_max_step=128, prompt_idx=0)
batch.Request.try_prefill(self)
batch.Request.decode_done(self, token, update_offset=True)
batch.Request.text(self)
batch.batch_generate(model, tokenizer, prompts, max_seq_len=512, batch_size=5, prefill_step=128)
sampler.make_sampler(temp, top_p, top_k)
""".splitlines()

# The same, but only in their module: three weeks share these names.
_ATTENTION = "hidden_size, num_heads, num_kv_heads, wq, wk, wv, wo, bq, bk, bv"
_BLOCK = (
    "num_attention_heads, num_kv_heads, hidden_size, intermediate_size, rms_norm_eps, wq, wk, wv, wo, "
    "bq, bk, bv, w_gate, w_up, w_down, w_input_layernorm, w_post_attention_layernorm"
)
_POSITIONS = "max_seq_len=32768, theta=1000000"
LAYERS = f"""qwen2_week1.Qwen2MultiHeadAttention({_ATTENTION}, {_POSITIONS})
qwen2_week1.Qwen2MultiHeadAttention.__call__(self, x, mask=None)
qwen2_week1.Qwen2MLP(dim, hidden_dim, w_gate, w_up, w_down)
qwen2_week1.Qwen2MLP.__call__(self, x)
qwen2_week1.Qwen2TransformerBlock({_BLOCK}, {_POSITIONS})
qwen2_week1.Qwen2TransformerBlock.__call__(self, x, mask=None)
qwen2_week2.Qwen2MultiHeadAttention({_ATTENTION}, {_POSITIONS}, use_flash_attention=False)
qwen2_week2.Qwen2MultiHeadAttention.__call__(self, x, offsets, cache, mask=None)
qwen2_week2.Qwen2MLP(dim, hidden_dim, w_gate, w_up, w_down)
qwen2_week2.Qwen2TransformerBlock({_BLOCK}, {_POSITIONS}, use_flash_attention=False)
qwen2_week2.Qwen2TransformerBlock.__call__(self, x, offset, cache, mask=None)
qwen2_week3.Qwen2MultiHeadAttention({_ATTENTION}, {_POSITIONS})
qwen2_week3.Qwen2MultiHeadAttention.__call__(self, x, offsets, cache, mask=None)
qwen2_week3.Qwen2MLP(dim, hidden_dim, w_gate, w_up, w_down)
qwen2_week3.Qwen2TransformerBlock({_BLOCK}, {_POSITIONS})
qwen2_week3.Qwen2TransformerBlock.__call__(self, x, offset, cache, mask=None)
qwen3.assert_dtype(weights, dtype)
qwen3.assert_quantized_weights_dtype(weights, dtype)
qwen3.Qwen3MultiHeadAttention(hidden_size, num_heads, num_kv_heads, head_dim, wq, wk, wv, wo, q_norm, \
k_norm, {_POSITIONS}, rms_norm_eps=1e-05, use_flash_attention=False)
qwen3.Qwen3MultiHeadAttention.__call__(self, x, offsets, cache, mask=None)
qwen3.Qwen3MLP(dim, hidden_dim, w_gate, w_up, w_down)
qwen3.Qwen3TransformerBlock(num_attention_heads, num_kv_heads, hidden_size, head_dim, intermediate_size, \
rms_norm_eps, wq, wk, wv, wo, q_norm, k_norm, w_gate, w_up, w_down, w_input_layernorm, \
w_post_attention_layernorm, {_POSITIONS}, use_flash_attention=False)
qwen3.Qwen3TransformerBlock.__call__(self, x, offset, cache, mask=None)
""".splitlines()

# The bindings of the course; the star stands where a stub needs it.
BINDINGS = [
    "axpby(x, y, alpha, beta, *, stream=None)",
    "linear(x, w, bias=None, *, stream=None)",
    "quantized_linear(x, matrices, group_size, bits, *, bias=None, norm=None, residual=None, gated=False, "
    "split=None, stream=None)",
    "cached_attention(query, key, value, caches, cos, sin, offset, *, scale=None, traditional=False, "
    "stream=None)",
    "silu_multiply(gate, up, *, stream=None)",
    "quantized_rows(ids, weight, scales, biases, group_size, bits, *, stream=None)",
    "argmax(x, *, stream=None)",
    "top_k(x, k, *, stream=None)",
    "logsumexp(x, *, stream=None)",
    "categorical(logits, uniform, *, stream=None)",
    "quantized_matmul(scales, biases, group_size, bits, a, b, transpose_b=False, stream=None)",
    "flash_attention(query, key, value, mask=None, scale=1.0, is_causal=False, "
    "*, num_kv_heads, num_heads, stream=None)",
    "explain_flash_attention(query, key, value, mask=None, scale=1.0, is_causal=False, "
    "*, num_kv_heads, num_heads, stream=None)",
    "paged_attention(query, key_pages, value_pages, block_table, context_lens, scale=1.0, is_causal=False, "
    "*, num_kv_heads, num_heads, stream=None)",
]
NATIVE_NAMES = {
    "argmax",
    "attention",
    "axpby",
    "DecoderBlock",
    "WeightMemory",
    "cached_attention",
    "categorical",
    "cpu_isa",
    "cpu_isas",
    "cpu_threads",
    "explain_cpu_threads",
    "explain_flash_attention",
    "flash_attention",
    "last_run",
    "linear",
    "load_library",
    "logsumexp",
    "paged_attention",
    "quantized_linear",
    "quantized_matmul",
    "quantized_rows",
    "rms_norm",
    "rope",
    "set_cpu_threads",
    "silu_multiply",
    "top_k",
    "zeros",
}

PATHS = [
    "main.py",
    "bench.py",
    "batch-main.py",
    "course.toml",
    "src/extensions/CMakeLists.txt",
    "src/extensions/bindings.cpp",
    "src/extensions/build.py",
    "src/extensions/test.py",
    "src/extensions/src/tiny_llm_ext.h",
    "src/extensions/src/axpby.cpp",
    "src/extensions/src/flash_attention.cpp",
    "src/extensions/src/paged_attention.cpp",
    "src/extensions/src/quantized_matmul.cpp",
    "tests/tiny_llm_base.py",
    "tests/utils.py",
]

SCRIPTS = {
    "main",
    "main-week1",
    "main-week2",
    "batch-main",
    "bench",
    "test",
    "bench-test",
    "build-ext",
    "build-ext-test",
    "clean-ext",
    "check-installation",
    "format",
    "format-cpp",
}

TEST_HELPERS = {
    "AVAILABLE_STREAMS",
    "AVAILABLE_STREAMS_IDS",
    "PRECISIONS",
    "PRECISION_IDS",
    "assert_allclose",
    "np_type_to_mx_type",
    "qwen_2_05b_model_exists",
    "qwen_2_15b_model_exists",
    "qwen_2_7b_model_exists",
}
