"""VarlenInfo: checked when it is made, and the same bits as the numbers."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import VarlenInfo
from tiny_llm.attention import explain, flash_attention_prefill, flash_attention_varlen

from ...support.cases import normal
from ...support.refusal import case_id, refused
from ...support.tolerance import same_bits

QUERY, KEY, VALUE = normal(8, 4, 32), normal(12, 2, 32, seed=1), normal(12, 2, 32, seed=2)
ROWS, KEY_ROWS = [0, 3, 3, 8], [0, 5, 7, 12]


def attend(*rows, **options):
    return flash_attention_varlen(QUERY, KEY, VALUE, *rows, causal=True, return_lse=True, **options)


@pytest.mark.parametrize("convert", [list, tuple, np.array, mx.array, lambda x: mx.array(x) + 0])
def test_the_bits_are_those_of_the_numbers(convert):
    assert same_bits(attend(ROWS, KEY_ROWS), attend(VarlenInfo(convert(ROWS), convert(KEY_ROWS))))


def test_keys_have_the_rows_of_queries_by_default():
    rows = QUERY, *(x[:8] for x in (KEY, VALUE))
    step = VarlenInfo(ROWS)
    assert mx.array_equal(flash_attention_varlen(*rows, step), flash_attention_varlen(*rows, ROWS))
    sizes = 32**-0.5, 4, 2, 32
    assert mx.array_equal(
        flash_attention_prefill(*rows, step, *sizes), flash_attention_prefill(*rows, ROWS, *sizes)
    )


def test_fields():
    step = VarlenInfo(ROWS, KEY_ROWS)
    assert (step.cu_seqlens_q.tolist(), step.cu_seqlens_k.tolist()) == (ROWS, KEY_ROWS)
    assert step.cu_seqlens_q.dtype == mx.int32
    assert (step.num_sequences, step.max_seqlen_q, step.max_seqlen_k) == (3, 5, 5)
    empty = VarlenInfo([0])
    assert (empty.num_sequences, empty.max_seqlen_q) == (0, 0)


def test_it_does_not_change():
    step = VarlenInfo(ROWS, KEY_ROWS)
    with pytest.raises(AttributeError):
        step.num_sequences = 1
    with pytest.raises(AttributeError):
        step.extra = 1
    step.cu_seqlens_q[1], step.cu_seqlens_k[1] = 2, 2
    assert same_bits(attend(ROWS, KEY_ROWS), attend(step))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("cu_seqlens_q", ([1, 8],)),
        ("cu_seqlens_q", ([0, 5, 3],)),
        ("cu_seqlens_q", ([],)),
        ("cu_seqlens_q", ([0.0, 8.0],)),
        ("cu_seqlens_q", ([0, True],)),
        ("cu_seqlens_q", ([0, 2**31],)),
        ("cu_seqlens_q", ([[0, 8]],)),
        ("cu_seqlens_q", (mx.array([0.0, 8.0]),)),
        ("cu_seqlens_q", (mx.array(8),)),
        ("cu_seqlens_q", ("0, 8",)),
        ("cu_seqlens_q", (None,)),
        ("cu_seqlens_k", ([0, 8], [0, 5, 8])),
        ("cu_seqlens_k", ([0, 8], [-1, 8])),
    ],
    ids=case_id,
)
def test_wrong_numbers_are_refused_when_it_is_made(argument, wrong):
    with refused(argument, (ValueError, TypeError), "VarlenInfo"):
        VarlenInfo(*wrong)


def test_a_call_that_does_not_fit_is_refused():
    with refused("cu_seqlens_k", function="flash_attention_varlen"):
        attend(VarlenInfo(ROWS, KEY_ROWS), KEY_ROWS)
    with refused("cu_seqlens_k", function="flash_attention_varlen"):
        attend(VarlenInfo(ROWS))
    with refused("cu_seqlens_q", function="flash_attention_varlen"):
        attend(VarlenInfo([0, 3, 7, 9], KEY_ROWS))


def test_explain():
    step = VarlenInfo(ROWS, KEY_ROWS)
    plan = explain(flash_attention_varlen, QUERY, KEY, VALUE, step, causal=True)
    assert plan == explain(flash_attention_varlen, QUERY, KEY, VALUE, ROWS, KEY_ROWS, causal=True)
