"""Wrong arguments of packed attention: an error before anything is computed."""

import mlx.core as mx
import pytest

from tiny_llm.attention import flash_attention_prefill, flash_attention_varlen

from ...support.attention.packed import check_varlen, packed
from ...support.late_errors import fails_whenever_evaluated
from ...support.refusal import case_id, fitting_arguments, refused

NAME = "flash_attention_varlen"
SIZES = {"query": (12, 4, 32), "key": (12, 2, 32), "value": (12, 2, 32)}
WRONG = [[1, 5, 12], [-1, 12], [0, 7, 5, 12], [0, 5], [0, 5, 13], [0, 5, 12 + 2**32]]
WRONG_CUMULATIVE = pytest.mark.parametrize("wrong", [*WRONG, [0]], ids=str)


def arguments(wrong):
    return fitting_arguments(SIZES, {"cu_seqlens_q": [0, 5, 12], **wrong})


@WRONG_CUMULATIVE
def test_wrong_cumulative_lengths_of_queries(wrong):
    with refused("cu_seqlens_q", function=NAME):
        flash_attention_varlen(**arguments({"cu_seqlens_q": wrong}))


@WRONG_CUMULATIVE
def test_wrong_cumulative_lengths_of_keys(wrong):
    with refused("cu_seqlens_k", function=NAME):
        flash_attention_varlen(**arguments({"cu_seqlens_k": wrong}))


@pytest.mark.parametrize("E", [32, 257], ids=["fused", "reference"])
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_cumulative_lengths_that_are_computed_with_the_attention(wrong, E):
    def call():
        query, key, value = (mx.zeros((*shape[:2], E)) for shape in SIZES.values())
        late = mx.array(wrong, dtype=mx.int64) * 1
        return [flash_attention_varlen(query, key, value, late, on_fallback="allow")]

    fails_whenever_evaluated(call, "cu_seqlens_q", NAME)
    check_varlen(packed([5, 7]))  # the worker thread still runs


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": (12, 4)}),
        ("query", {"query": (1, 12, 4, 32)}),
        ("query", {"query": (12, 3, 32)}),
        ("key", {"key": (12, 2, 31)}),
        ("key", {"key": (12, 2)}),
        ("value", {"value": (11, 2, 32)}),
        ("value", {"value": (12, 1, 32)}),
        ("key", {"key": mx.float16}),
        ("query", dict.fromkeys(SIZES, mx.int32)),
        ("cu_seqlens_q", {"cu_seqlens_q": mx.array([[0, 12]])}),
        ("cu_seqlens_q", {"cu_seqlens_q": mx.array([0.0, 12.0])}),
        ("cu_seqlens_q", {"cu_seqlens_q": []}),
        ("cu_seqlens_q", {"cu_seqlens_q": "0, 12"}),
        ("cu_seqlens_q", {"cu_seqlens_q": mx.array([0, 12], dtype=mx.uint32)}),
        ("cu_seqlens_k", {"cu_seqlens_k": [0, 12]}),
        ("kv_lens", {"kv_lens": [5]}),
        ("kv_lens", {"kv_lens": [5, 8]}),
        ("q_lens", {"q_lens": [-1, 7]}),
        ("kv_start", {"kv_start": [0, 8]}),
        ("window", {"window": 0}),
        ("softcap", {"softcap": -1.0}),
        ("sinks", {"sinks": mx.zeros((3,))}),
        ("mask", {"mask": "full"}),
        ("scale", {"scale": float("inf")}),
    ],
    ids=case_id,
)  # fmt: skip
def test_wrong_arguments(argument, wrong):
    with refused(argument, function=NAME):
        flash_attention_varlen(**arguments(wrong))


def test_cumulative_lengths_are_required():
    with refused("cu_seqlens_q", TypeError, NAME):
        flash_attention_varlen(**arguments({"cu_seqlens_q": None}))


def test_a_mask_array_is_not_implemented():
    with pytest.raises(NotImplementedError, match=r"^flash_attention_varlen: mask: .*flash_attention"):
        flash_attention_varlen(**arguments({"mask": mx.zeros((12, 12))}))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("q", {"num_heads": 5}),
        ("k", {"num_kv_heads": 1}),
        ("q", {"head_dim": 16}),
        ("v", {"v": (12, 2, 31)}),
        ("cu_seqlens", {"cu_seqlens": [0, 5]}),
    ],
    ids=case_id,
)
def test_sizes_of_prefill_are_those_of_the_arrays(argument, wrong):
    sizes = dict(zip("qkv", SIZES.values(), strict=True))
    options = {"cu_seqlens": [0, 12], "scale": 1.0, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32}
    with refused(argument, function="flash_attention_prefill"):
        flash_attention_prefill(**fitting_arguments(sizes, options | wrong))
