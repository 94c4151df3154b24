"""Wrong arguments of packed queries against pages: an error before anything is computed or written."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import paged_attention, paged_attention_decode

from ...support.late_errors import fails_whenever_evaluated
from ...support.refusal import case_id, fitting_arguments, refused

NAME = "paged_attention"
SIZES = {"query": (12, 4, 32), "key_pages": (6, 2, 16, 32), "value_pages": (6, 2, 16, 32)}
TABLE, CONTEXTS = [[0, 3, 5], [2, -1, -1]], [40, 16]


def integers(values):
    return mx.array(values, dtype=mx.int32)


def arguments(**wrong):
    fitting = {"block_table": integers(TABLE), "context_lens": integers(CONTEXTS), "cu_seqlens_q": [0, 5, 12]}
    return fitting_arguments(SIZES, {**fitting, "causal": True, **wrong})


WRONG_NUMBERS = pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("block_table", {"block_table": integers([[0, 6, 5], [2, -1, -1]])}),
        ("block_table", {"block_table": integers([[0, 3, -1], [2, -1, -1]])}),
        ("block_table", {"block_table": integers([[0, 3, 5], [-(2**31), -1, -1]])}),
        ("block_table", {"block_table": mx.array(np.array([[0, 3, 5], [2**31, 0, 0]], np.uint32))}),
        ("block_table", {"context_lens": integers([40, 17])}),
        ("context_lens", {"context_lens": integers([49, 16])}),
        ("context_lens", {"context_lens": integers([40, -1])}),
        ("context_lens", {"context_lens": integers([40, 2**31 - 1])}),
        ("cu_seqlens_q", {"cu_seqlens_q": mx.array([0, 5, 11])}),
        ("cu_seqlens_q", {"cu_seqlens_q": mx.array([0, 13, 12])}),
        ("q_lens", {"q_lens": mx.array([6, 7])}),
    ],
    ids=case_id,
)


@WRONG_NUMBERS
def test_wrong_numbers_are_refused_at_the_call(argument, wrong):
    with refused(argument, function=NAME):
        paged_attention(**arguments(**wrong))


@WRONG_NUMBERS
def test_wrong_numbers_that_are_computed_with_the_attention(argument, wrong):
    def call():
        late = {name: x * 1 for name, x in wrong.items()}
        return list(paged_attention(**arguments(**late), return_lse=True))

    fails_whenever_evaluated(call, argument, NAME)
    assert mx.isfinite(paged_attention(**arguments())).all()  # the worker thread still runs


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"query": (12, 32)}),
        ("query", {"query": (12, 3, 32)}),
        ("key_pages", {"query": (12, 4, 31)}),
        ("key_pages", {"key_pages": (6, 2, 16)}),
        ("key_pages", {"key_pages": mx.float16}),
        ("value_pages", {"value_pages": (6, 2, 8, 32)}),
        ("value_pages", {"value_pages": mx.bfloat16}),
        ("block_table", {"block_table": mx.zeros((2, 3))}),
        ("context_lens", {"context_lens": integers([40])}),
        ("cu_seqlens_q", {"cu_seqlens_q": [0, 12]}),
        ("cu_seqlens_q", {"cu_seqlens_q": [0.0, 5.0, 12.0]}),
        ("query", {"cu_seqlens_q": None}),
        ("q_lens", {"q_lens": [5]}),
        ("key_pages", {"page_size": 256}),
        ("key_pages", {"layout": "PSHE", "page_size": 2, "key_pages": (6, 16, 2, 32)}),
        ("layout", {"layout": "HPSE"}),
        ("window", {"window": 0}),
        ("softcap", {"softcap": 0.0}),
        ("sinks", {"sinks": mx.zeros((2,))}),
        ("scale", {"scale": float("nan")}),
    ],
    ids=case_id,
)
def test_wrong_arguments(argument, wrong):
    with refused(argument, function=NAME):
        paged_attention(**arguments(**wrong))


def test_rows_of_a_batch_have_no_cumulative_lengths():
    with refused("cu_seqlens_q", function=NAME):
        paged_attention(**arguments(query=(2, 4, 5, 32)))


@pytest.mark.parametrize("query", [(12, 4, 32), (2, 4, 5, 32)], ids=["packed", "batch"])
def test_pools_with_gaps_are_refused_instead_of_copied(query):
    rows = [0, 5, 12] if len(query) == 3 else None
    for late in (False, True):
        gaps = mx.zeros((6, 2, 16, 64))[..., ::2]
        if not late:
            mx.eval(gaps)
        with refused("value_pages", RuntimeError if late else ValueError, NAME):
            mx.eval(paged_attention(**arguments(query=query, cu_seqlens_q=rows, value_pages=gaps)))


@pytest.mark.parametrize("pages", ["key_pages", "value_pages"])
@pytest.mark.parametrize("option", [{"causal": True}, {"window": 9}, {"layout": "PSHE"}], ids=case_id)
def test_pools_of_another_type_are_refused_instead_of_converted(option, pages):
    sizes = {"key_pages": (6, 16, 2, 32), "value_pages": (6, 16, 2, 32)} if "layout" in option else {}
    batch = {"query": (2, 4, 5, 32), "cu_seqlens_q": None, "causal": False, **sizes, **option}
    call = arguments(**batch)
    call[pages] = call[pages].astype(mx.bfloat16)
    with refused(pages, function=NAME):
        paged_attention(**call)


@pytest.mark.parametrize("mask", ["full", mx.zeros((12, 40))], ids=case_id)
def test_other_masks_are_not_implemented(mask):
    with pytest.raises(NotImplementedError, match=r"^paged_attention: mask: got"):
        paged_attention(**arguments(mask=mask))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("query", {"num_heads": 2}),
        ("k_cache", {"num_kv_heads": 4}),
        ("query", {"head_dim": 64}),
        ("k_cache", {"block_size": 256}),
        ("v_cache", {"v_cache": (6, 16, 1, 32)}),
        ("context_lens", {"context_lens": integers([49, 16])}),
        ("block_tables", {"context_lens": integers([40, 17])}),
    ],
    ids=case_id,
)
def test_decode_of_minivllm(argument, wrong):
    sizes = {"query": (2, 4, 32), "k_cache": (6, 16, 2, 32), "v_cache": (6, 16, 2, 32)}
    numbers = {"block_tables": integers(TABLE), "context_lens": integers(CONTEXTS), "scale": 1.0,
               "num_heads": 4, "num_kv_heads": 2, "head_dim": 32}  # fmt: skip
    with refused(argument, function="paged_attention_decode"):
        paged_attention_decode(**fitting_arguments(sizes, numbers | wrong))
