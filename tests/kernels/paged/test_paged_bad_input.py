"""Wrong arguments of paged attention are refused at the call."""

import mlx.core as mx
import pytest

from tiny_llm.attention import paged_attention
from tiny_llm.runtime.extension import load_extension

from ...support.refusal import case_id, refused


def wrapper_arguments():
    return {"query": mx.zeros((2, 4, 9, 32)), "key_pages": mx.zeros((5, 2, 16, 32)),
            "value_pages": mx.zeros((5, 2, 16, 32)), "block_table": mx.zeros((2, 3), dtype=mx.int32),
            "context_lens": mx.zeros((2,), dtype=mx.int32), "page_size": 16}  # fmt: skip


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": mx.zeros((4, 9, 32))}),
        ("query", {"query": mx.zeros((2, 3, 9, 32))}),
        ("query", {"query": mx.zeros((2, 0, 9, 32))}),
        ("query", {"query": mx.zeros((2, 4, 9, 32), dtype=mx.int32)}),
        ("key_pages", {"query": mx.zeros((2, 4, 9, 31))}),
        ("key_pages", {"page_size": 8}),
        ("key_pages", {"key_pages": mx.zeros((5, 2, 16))}),
        ("value_pages", {"value_pages": mx.zeros((5, 2, 16, 31))}),
        ("value_pages", {"value_pages": mx.zeros((4, 2, 16, 32))}),
        ("value_pages", {"value_pages": mx.zeros((5, 2, 16, 32), dtype=mx.int32)}),
        ("block_table", {"block_table": mx.zeros((3, 3), dtype=mx.int32)}),
        ("block_table", {"block_table": mx.zeros((6,), dtype=mx.int32)}),
        ("block_table", {"block_table": mx.zeros((2, 3))}),
        ("context_lens", {"context_lens": mx.zeros((3,), dtype=mx.int32)}),
        ("context_lens", {"context_lens": mx.zeros((2,))}),
        ("scale", {"scale": float("nan")}),
        ("scale", {"scale": mx.zeros((2,))}),
    ],
    ids=case_id,
)
def test_the_wrapper_refuses_wrong_arguments(argument, wrong):
    with refused(argument, function="paged_attention"):
        paged_attention(**(wrapper_arguments() | wrong))


@pytest.mark.parametrize(
    "mask", ["full", "", mx.zeros((9, 48)), mx.ones((9, 48), dtype=mx.bool_)], ids=case_id
)
def test_other_masks_are_not_implemented(mask):
    with pytest.raises(NotImplementedError, match=r"^paged_attention: mask: got"):
        paged_attention(**wrapper_arguments(), mask=mask)


def binding_arguments():
    arrays = wrapper_arguments()
    del arrays["page_size"]
    return arrays | {"query": mx.zeros((8, 9, 32)), "num_kv_heads": 2, "num_heads": 4}


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": mx.zeros((2, 4, 9, 32))}),
        ("query", {"query": mx.zeros((8, 9, 32), dtype=mx.float16)}),
        ("query", {"query": mx.zeros((7, 9, 32))}),
        ("query", {"query": mx.zeros((12, 9, 32))}),
        ("key_pages", {"key_pages": mx.zeros((5, 2, 16, 32), dtype=mx.float16)}),
        ("key_pages", {"key_pages": mx.zeros((5, 2, 16, 31))}),
        ("key_pages", {"key_pages": mx.zeros((5, 4, 16, 32)), "value_pages": mx.zeros((5, 4, 16, 32))}),
        ("key_pages", {"key_pages": mx.zeros((5, 2, 0, 32)), "value_pages": mx.zeros((5, 2, 0, 32))}),
        ("value_pages", {"value_pages": mx.zeros((6, 2, 16, 32))}),
        ("block_table", {"block_table": mx.zeros((2, 3), dtype=mx.int64)}),
        ("context_lens", {"context_lens": mx.zeros((3,), dtype=mx.int32)}),
        ("context_lens", {"context_lens": mx.zeros((2,), dtype=mx.int64)}),
        ("num_heads", {"num_heads": 0}),
        ("num_kv_heads", {"num_kv_heads": 0}),
        ("num_heads", {"num_heads": 3}),
        ("scale", {"scale": float("inf")}),
    ],
    ids=case_id,
)
def test_the_binding_refuses_wrong_arguments(argument, wrong):
    with refused(argument, function="paged_attention"):
        load_extension().paged_attention(**(binding_arguments() | wrong))


def test_correct_arguments_are_accepted():
    assert paged_attention(**wrapper_arguments()).shape == (2, 4, 9, 32)
    assert load_extension().paged_attention(**binding_arguments()).shape == (8, 9, 32)


def test_a_head_size_without_a_kernel_is_named():
    big = {name: mx.zeros((*x.shape[:-1], 257)) for name, x in binding_arguments().items()
           if name in ("query", "key_pages", "value_pages")}  # fmt: skip
    text = (
        r"^paged_attention: no fused kernel: .*257.*256.*; tiny_llm.paged_attention runs attention_reference"
    )
    with pytest.raises(NotImplementedError, match=text):
        load_extension().paged_attention(**(binding_arguments() | big))


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(RuntimeError, match=r"^paged_attention: .*gpu"):
        load_extension().paged_attention(**binding_arguments(), stream=mx.gpu)
