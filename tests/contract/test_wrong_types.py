"""The error for an argument of a wrong type names operation and argument, the given and the expected type."""

from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

import tiny_llm as t
from tiny_llm import nn
from tiny_llm.loading.config import read_config
from tiny_llm.loading.find import EMBEDDED
from tiny_llm.loading.tokenizer.read_tokenizer import read_tokenizer
from tiny_llm.sampling.params import Sampling

from ..support.generation.byte_text import ByteTokenizer
from ..support.generation.fake_models import CachedFake, FullContextFake
from ..support.generation.rules import scripted
from ..support.models.checkpoints import checkpoint
from ..support.products.quantized import packed
from ..support.refusal import case_id

NUMPY = np.zeros((2, 2), np.float32)
WRONG: dict[str, tuple[Any, ...]] = {
    "array": (None, "x", [1.0], NUMPY, 1.5, True),
    "size": (None, "2", [2], NUMPY, 1.5, True),
    "size or None": ("2", [2], NUMPY, 1.5, True),
    "number": ("x", [1.0], NUMPY, True),
    "lengths": (None, "x", 1.5, [1.5], NUMPY),
    "axis": (None, "x", [1], NUMPY, 1.5),
    "dtype": (None, "float32", np.float32, 1),
    "text": (None, 1, ["x"], NUMPY, True, b"x"),
    "texts": (None, 1, "x", NUMPY, True, ["x", 1], [None]),
    "messages": (None, 1, "x", ["x"], [None], {"role": "user", "content": "x"}, NUMPY),
    "flag": (None, "x", [1], NUMPY),
    "object": (None, "x", 1.5, [1], NUMPY),
    "function": ("x", 1.5, [1], NUMPY),
    "functions": (None, 1, "x", ["x"], [1]),
}


class Call(NamedTuple):
    """A correct call, and the kind of each argument for which tests pass a wrong type."""

    operation: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    kinds: dict[str, str]


def arrays(*names: str, shape: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    return {name: mx.zeros(shape) for name in names}


def kinds(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


QKV = {"query": mx.zeros((1, 2, 3, 4)), "key": mx.zeros((1, 1, 3, 4)), "value": mx.zeros((1, 1, 3, 4))}
ONE_HEAD = {name: x[:, :1] for name, x in QKV.items()}
ROWS = {name: x[0].swapaxes(0, 1) for name, x in QKV.items()}  # one packed sequence
PROMPTS = {
    **dict(zip("qkv", ROWS.values(), strict=True)), "cu_seqlens": [0, 3], "scale": 1.0,
    "num_heads": 2, "num_kv_heads": 1, "head_dim": 4,
}  # fmt: skip
PROMPT_KINDS = {
    **kinds("array", *"qkv"), "scale": "number", **kinds("size", "num_heads", "num_kv_heads", "head_dim")
}  # fmt: skip
PAGES = {
    "query": mx.zeros((1, 2, 1, 4)),
    "key_pages": mx.zeros((2, 1, 4, 4)),
    "value_pages": mx.zeros((2, 1, 4, 4)),
    "block_table": mx.zeros((1, 1), mx.int32),
    "context_lens": mx.ones((1,), mx.int32),
    "page_size": 4,
}
LAYER = {"embed_dim": 4, "num_heads": 2}
LAYER_KINDS = {**kinds("size", *LAYER), "dropout": "number", **kinds("flag", "bias", "causal")}
PACKED = packed(8, 64)
MODEL = CachedFake(scripted({"hi": list(b"abc")}))
READER = FullContextFake(scripted({"hi": list(b"abc")}))
TOKENIZER = ByteTokenizer()
GENERATE = {"model": MODEL, "tokenizer": TOKENIZER, "prompt": "hi"}
GENERATE_KINDS = {**kinds("object", "model", "tokenizer"), "prompt": "text"}


def weighted(layer: Callable[..., Any], **made_with: Any) -> Callable[..., Any]:
    """A layer as a function of its input."""
    return lambda **arguments: layer(**made_with)(**arguments)


CALLS = (
    Call("softmax", t.softmax, {**arrays("x"), "axis": 0}, {"x": "array", "axis": "axis"}),
    Call("linear", t.linear, arrays("x", "w"), kinds("array", "x", "w")),
    Call("silu", t.silu, arrays("x"), kinds("array", "x")),
    Call("scaled_dot_product_attention_simple", t.scaled_dot_product_attention_simple, ONE_HEAD,
         {**kinds("array", *QKV), "scale": "number"}),
    Call("scaled_dot_product_attention_grouped", t.scaled_dot_product_attention_grouped, QKV,
         {**kinds("array", *QKV), "scale": "number"}),
    Call("flash_attention", t.flash_attention, QKV,
         {**kinds("array", *QKV), **kinds("number", "scale", "softcap"),
          **kinds("flag", "causal", "return_lse")}),
    Call("flash_attention_varlen", t.flash_attention_varlen, {**ROWS, "cu_seqlens_q": [0, 3]},
         {**kinds("array", *QKV), **kinds("number", "scale", "softcap"),
          **kinds("flag", "causal", "return_lse")}),
    Call("flash_attention_prefill", t.flash_attention_prefill, PROMPTS, PROMPT_KINDS),
    Call("standard_attention", t.standard_attention, PROMPTS, {**PROMPT_KINDS, "cu_seqlens": "lengths"}),
    Call("naive_tile_attention", t.naive_tile_attention, {**PROMPTS, "max_seq_len": 4},
         {**PROMPT_KINDS, "cu_seqlens": "lengths", "max_seq_len": "size or None"}),
    Call("Attention", nn.Attention, {"num_heads": 2, "head_dim": 4, "scale": 1.0, "block_size": 4},
         {**kinds("size", "num_heads", "head_dim"), "scale": "number", "block_size": "size or None"}),
    Call("Attention", nn.Attention(2, 4, num_kv_heads=1),
         {**{name: PROMPTS[name] for name in "qkv"}, "metadata": nn.PrefillMetadata([0, 3])},
         {**kinds("array", *"qkv"), "metadata": "object"}),
    Call("attention_reference", t.attention_reference, QKV, {**kinds("array", *QKV), "scale": "number"}),
    Call("flash_attention_v1", t.flash_attention_v1, ONE_HEAD,
         {**kinds("array", *QKV), "scale": "number", "causal": "flag", "on_visit": "function"}),
    Call("flash_attention_v2", t.flash_attention_v2, ONE_HEAD,
         {**kinds("array", *QKV), "scale": "number", "causal": "flag", "on_visit": "function"}),
    Call("paged_attention", t.paged_attention, PAGES,
         {**kinds("array", *(name for name in PAGES if name != "page_size")), "page_size": "size or None",
          "scale": "number"}),
    Call("paged_attention_decode", t.paged_attention_decode,
         {"query": mx.zeros((1, 2, 4)), **arrays("k_cache", "v_cache", shape=(2, 4, 1, 4)),
          "block_tables": PAGES["block_table"], "context_lens": PAGES["context_lens"], "scale": 1.0,
          "num_heads": 2, "num_kv_heads": 1, "head_dim": 4},
         {**kinds("array", "query", "k_cache", "v_cache", "block_tables", "context_lens"), "scale": "number",
          **kinds("size", "num_heads", "num_kv_heads", "head_dim"), "block_size": "size or None"}),
    Call("store_kvcache", t.store_kvcache,
         {**arrays("key", "value", shape=(1, 1, 4)), **arrays("k_cache", "v_cache", shape=(2, 4, 1, 4)),
          "slot_mapping": mx.array([3])},
         {**kinds("array", "key", "value", "k_cache", "v_cache", "slot_mapping"),
          "block_size": "size or None"}),
    Call("causal_mask", t.causal_mask, {"L": 2, "S": 3, "dtype": mx.float32},
         {**kinds("size", "L", "S"), "dtype": "dtype"}),
    Call("merge_lse", t.merge_lse, {**arrays("o1", "o2"), **arrays("lse1", "lse2", shape=(2,))},
         kinds("array", "o1", "lse1", "o2", "lse2")),
    Call("SimpleMultiHeadAttention", t.SimpleMultiHeadAttention,
         {"hidden_size": 2, "num_heads": 1, **arrays("wq", "wk", "wv", "wo")},
         {**kinds("size", "hidden_size", "num_heads"), **kinds("array", "wq", "wk", "wv", "wo")}),
    Call("NaiveAttention", nn.NaiveAttention, LAYER, LAYER_KINDS),
    Call("NaiveAttention", weighted(nn.NaiveAttention, **LAYER), {"x": mx.zeros((1, 2, 4))}, {"x": "array"}),
    Call("FusedFlashAttention", nn.FusedFlashAttention, LAYER, {**LAYER_KINDS, "block_size": "size"}),
    Call("GroupedQueryAttention", nn.GroupedQueryAttention, {**LAYER, "num_kv_heads": 1},
         {**LAYER_KINDS, **kinds("size", "block_size", "num_kv_heads")}),
    Call("SlidingWindowAttention", nn.SlidingWindowAttention, LAYER, {**LAYER_KINDS, "window_size": "size"}),
    Call("MaskedAttention", nn.MaskedAttention, LAYER, {**LAYER_KINDS, "chunk_size": "size"}),
    Call("get_attention", nn.get_attention, {"type": "naive", **LAYER}, {"type": "text"}),
    Call("validate_attention", nn.validate_attention, {"layer": nn.NaiveAttention(**LAYER)},
         {"layer": "object"}),
    Call("create_padding_mask", nn.create_padding_mask, {"lengths": [1, 2], "max_len": 3},
         {"lengths": "lengths", "max_len": "size"}),
    Call("create_causal_mask", nn.create_causal_mask, {"L": 2, "S": 3}, {"L": "size", "S": "size or None"}),
    Call("Embedding", t.Embedding, {"vocab_size": 2, "embedding_dim": 2, **arrays("weight")},
         {**kinds("size", "vocab_size", "embedding_dim"), "weight": "array"}),
    Call("Embedding", weighted(t.Embedding, vocab_size=2, embedding_dim=2, weight=mx.zeros((2, 2))),
         {"ids": mx.array([0])}, {"ids": "array"}),
    Call("RMSNorm", t.RMSNorm, {"dim": 2, **arrays("weight", shape=(2,)), "eps": 1e-5},
         {"dim": "size", "weight": "array", "eps": "number"}),
    Call("RMSNorm", weighted(t.RMSNorm, dim=2, weight=mx.ones(2)), arrays("x"), {"x": "array"}),
    Call("RoPE", t.RoPE, {"dims": 4, "seq_len": 8}, {**kinds("size", "dims", "seq_len"), "base": "number"}),
    Call("RoPE", weighted(t.RoPE, dims=4, seq_len=8), {"x": mx.zeros((1, 2, 1, 4))}, {"x": "array"}),
    Call("quantized_linear", t.quantized_linear,
         {"x": mx.zeros((2, 64)), "w": t.QuantizedWeights(*PACKED)}, {"x": "array", "w": "object"}),
    Call("quantized_matmul", t.quantized_matmul,
         {"scales": PACKED.scales, "biases": PACKED.biases, "group_size": 64, "bits": 4,
          "a": mx.zeros((2, 64)), "b": PACKED.words, "transpose_b": True},
         {**kinds("array", "scales", "biases", "a", "b"), **kinds("size", "group_size", "bits")}),
    Call("mx_quantized_matmul", t.mx_quantized_matmul,
         {"x": mx.zeros((2, 64)), "w": PACKED.words, "scales": PACKED.scales, "biases": PACKED.biases},
         kinds("array", "x", "w", "scales", "biases")),
    Call("dequantize_linear", t.dequantize_linear, {"mlx_layer": checkpoint().model.embed_tokens},
         {"mlx_layer": "object"}),
    Call("TinyKvFullCache", weighted(lambda: t.TinyKvFullCache().update_and_fetch),
         arrays("key", "value", shape=(1, 1, 1, 2)), kinds("array", "key", "value")),
    Call("BatchingKvCache", t.BatchingKvCache, {"max_active_requests": 1, "max_seq_len": 4},
         kinds("size", "max_active_requests", "max_seq_len")),
    Call("TinyKvPagedPool", t.TinyKvPagedPool, {"page_size": 4}, {"page_size": "size"}),
    Call("TinyKvPagedCache", t.TinyKvPagedCache, {"pool": t.TinyKvPagedPool(4)}, {"pool": "object"}),
    Call("shortcut_name_to_full_name", t.shortcut_name_to_full_name, {"shortcut_name": "qwen2-7b"},
         {"shortcut_name": "text"}),
    Call("dispatch_model", t.dispatch_model,
         {"model_name": "Qwen/Qwen2-0.5B-Instruct-MLX", "mlx_model": checkpoint(), "week": 2},
         {"model_name": "text", "mlx_model": "object", "week": "size"}),
    Call("Qwen2ModelWeek2", t.Qwen2ModelWeek2, {"mlx_model": checkpoint()}, {"mlx_model": "object"}),
    Call("make_sampler", t.make_sampler, {"temp": 1.0, "top_p": None, "top_k": None},
         kinds("number", "temp", "top_p", "top_k", "min_p", "seed")),
    Call("Sampling", Sampling, {},
         {**kinds("number", "temp", "top_p", "top_k", "min_p", "seed"),
          **kinds("number", "presence_penalty", "frequency_penalty"), "min_tokens": "size",
          "ignore_eos": "flag"}),
    Call("simple_generate", t.simple_generate, {**GENERATE, "model": READER, "sampler": None},
         {**GENERATE_KINDS, "sampler": "function"}),
    Call("simple_generate_with_kv_cache", t.simple_generate_with_kv_cache, GENERATE,
         {**GENERATE_KINDS, "sampler": "function"}),
    Call("speculative_generate", t.speculative_generate,
         {**GENERATE, "draft_model": MODEL, "draft_tokenizer": TOKENIZER},
         {**GENERATE_KINDS, **kinds("object", "draft_model", "draft_tokenizer", "sampling")}),
    Call("stream_generate", t.stream_generate, GENERATE,
         {**GENERATE_KINDS, "sampling": "object", "processors": "functions",
          **kinds("size or None", "prefill_step", "max_tokens")}),
    Call("Request", t.Request, GENERATE, {**GENERATE_KINDS, "prefill_max_step": "size"}),
    Call("batch_generate", t.batch_generate, {"model": MODEL, "tokenizer": TOKENIZER, "prompts": ["hi"]},
         {**kinds("object", "model", "tokenizer"), "prompts": "texts", "finished": "function",
          **kinds("size", "max_seq_len", "batch_size", "prefill_step")}),
    Call("apply_chat_template", read_tokenizer(EMBEDDED, read_config(EMBEDDED)).apply_chat_template,
         {"messages": [{"role": "user", "content": "hi"}]},
         {"messages": "messages", "tokenize": "flag"}),
)  # fmt: skip

CASES = [
    pytest.param(call, argument, wrong, id=f"{call.operation}-{argument}-{case_id(wrong)}")
    for call in CALLS
    for argument, kind in call.kinds.items()
    for wrong in WRONG[kind]
]


@pytest.mark.parametrize(("call", "argument", "wrong"), CASES)
def test_a_wrong_type_is_named_before_anything_is_computed(call, argument, wrong):
    MODEL.calls.clear()
    with pytest.raises((TypeError, ValueError, NotImplementedError)) as refused:
        call.function(**call.arguments | {argument: wrong})
    text = str(refused.value)
    assert text.startswith(f"{call.operation}: "), text
    assert argument in text, text
    assert "got " in text, text
    assert "expected " in text, text
    assert MODEL.calls == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)
def test_right_types_are_accepted(call):
    call.function(**call.arguments)
