"""The readable forms of attention refuse what they cannot compute, in one line that names the argument."""

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import scaled_dot_product_attention_grouped, scaled_dot_product_attention_simple

from ..support.cases import normal, qkv
from ..support.refusal import case_id, refused

FUNCTIONS = [scaled_dot_product_attention_simple, scaled_dot_product_attention_grouped]
BOTH = pytest.mark.parametrize("function", FUNCTIONS, ids=["simple", "grouped"])
B, HEADS, L, S, E = 2, 4, 5, 9, 8


def inputs(**changes):
    query, key, value = qkv(batch=(B,), heads=HEADS, kv_heads=HEADS, L=L, S=S, E=E)
    return {"query": query, "key": key, "value": value} | changes


@BOTH
@pytest.mark.parametrize(
    "changes",
    [
        {"query": normal(E)},
        {"query": mx.array(1.0)},
        {"query": mx.zeros((B, HEADS, L, E), dtype=mx.int32)},
        {"key": normal(B, HEADS, S, E + 1)},
        {"key": normal(3, HEADS, S, E)},
        {"key": normal(HEADS, S, E)},
        {"key": mx.ones((B, HEADS, S, E), dtype=mx.bool_)},
        {"value": normal(B, HEADS, S + 1, E)},
        {"value": normal(B, HEADS - 1, S, E)},
        {"value": mx.zeros((B, HEADS, S, E), dtype=mx.uint8)},
        {"mask": mx.zeros((L, S), dtype=mx.int32)},
        {"mask": mx.zeros((L, S), dtype=mx.complex64)},
        {"mask": mx.zeros((L + 1, S))},
        {"mask": mx.zeros((L, S + 1))},
        {"mask": mx.zeros((1, B, HEADS, L, S))},
        {"mask": np.zeros((L, S))},
        {"mask": [[0.0]] * 300},
        {"scale": mx.array(True)},
        {"mask": "full"},
        {"mask": True},
    ],
    ids=case_id,
)
def test_a_wrong_value_is_refused(function, changes):
    (argument,) = changes
    with refused(argument, function=function.__name__) as caught:
        function(**inputs(**changes))
    assert len(str(caught.value)) < 200


@BOTH
@pytest.mark.parametrize(
    "changes",
    [
        {"query": [1.0]},
        {"key": None},
        {"value": np.zeros((B, HEADS, S, E), np.float32)},
        {"scale": "1"},
        {"scale": [1.0]},
        {"scale": True},
        {"scale": mx.zeros((L, S))},
    ],
    ids=case_id,
)
def test_a_wrong_type_is_refused(function, changes):
    (argument,) = changes
    with refused(argument, TypeError, function=function.__name__):
        function(**inputs(**changes))


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 3), (2, 4), (3, 0)])
def test_heads_that_cannot_share_are_refused(heads, kv_heads):
    query, key, value = qkv(batch=(B,), heads=heads, kv_heads=kv_heads, L=L, S=S, E=E)
    with refused("query", function="scaled_dot_product_attention_grouped"):
        scaled_dot_product_attention_grouped(query, key, value)


def test_simple_attention_takes_no_mask_by_name():
    with refused("mask", function="scaled_dot_product_attention_simple"):
        scaled_dot_product_attention_simple(**inputs(), mask="causal")
