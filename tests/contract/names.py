"""The public names that may not move: what a chapter, a script or another program already calls them."""

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
attention.attention_reference(query, key, value, scale=None, mask=None)
attention.explain(function, query, key, value, scale=None, mask=None)
attention.merge_lse(o1, lse1, o2, lse2)
attention.SimpleMultiHeadAttention(hidden_size, num_heads, wq, wk, wv, wo)
""".splitlines()

# The flat binding of the course; the star stands where a stub needs it.
FLAT_BINDING = (
    "flash_attention(query, key, value, mask=None, scale=1.0, is_causal=False, "
    "*, num_kv_heads, num_heads, stream=None)"
)
NATIVE_NAMES = {
    "attention",
    "cpu_isa",
    "cpu_isas",
    "cpu_threads",
    "flash_attention",
    "last_run",
    "load_library",
}

PATHS = [
    "main.py",
    "bench.py",
    "course.toml",
    "src/extensions/CMakeLists.txt",
    "src/extensions/bindings.cpp",
    "src/extensions/build.py",
    "src/extensions/test.py",
    "src/extensions/src/tiny_llm_ext.h",
    "src/extensions/src/flash_attention.cpp",
    "tests/tiny_llm_base.py",
    "tests/utils.py",
]

SCRIPTS = {
    "main",
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
