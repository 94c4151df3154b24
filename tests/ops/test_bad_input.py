"""Layers refuse invalid input at the call, with one line that names the argument."""

import re

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import SimpleMultiHeadAttention, paged_attention
from tiny_llm.basics import linear, silu, silu_multiply, softmax
from tiny_llm.embedding import Embedding
from tiny_llm.layer_norm import RMSNorm
from tiny_llm.quantize import (
    QuantizedEmbedding,
    QuantizedWeights,
    quantized_gate,
    quantized_heads,
    quantized_linear,
    quantized_matmul,
)

from ..support.attention.pages import paged
from ..support.cases import normal
from ..support.products.quantized import packed
from ..support.refusal import case_id, refused
from ..support.rows import graph_of

PACKED = packed(8, 64)
WEIGHTS = QuantizedWeights(*PACKED)
WHOLE = mx.zeros((3, 64), dtype=mx.int32)
SQUARE = dict.fromkeys(("wq", "wk", "wv", "wo"), mx.zeros((8, 8)))
PAGES = paged(normal(1, 2, 5, 8), normal(1, 2, 5, 8), [5], 4)._asdict() | {"query": normal(1, 2, 1, 8)}

# What is called, and arguments that fit it.
CALLS = {
    "softmax": (lambda x: softmax(x, -1), {"x": normal(3, 64)}),
    "silu": (silu, {"x": normal(3, 64)}),
    "silu_multiply": (silu_multiply, {"gate": normal(3, 64), "up": normal(3, 64)}),
    "linear": (linear, {"x": normal(3, 64), "w": normal(8, 64), "bias": normal(8)}),
    "RMSNorm": (lambda x, weight: RMSNorm(64, weight)(x), {"x": normal(3, 64), "weight": normal(64)}),
    "Embedding": (
        lambda ids, weight: Embedding(8, 64, weight)(ids),
        {"ids": mx.array([1, 2]), "weight": normal(8, 64)},
    ),
    "packed Embedding": (
        lambda ids, weight: QuantizedEmbedding(8, 64, weight)(ids),
        {"ids": mx.array([1, 2]), "weight": WEIGHTS},
    ),
    "SimpleMultiHeadAttention": (lambda **weights: SimpleMultiHeadAttention(8, 2, **weights), SQUARE),
    "paged_attention": (paged_attention, PAGES),
    "quantized_linear": (
        quantized_linear,
        {"x": normal(3, 64), "w": WEIGHTS, "bias": normal(8), "residual": normal(3, 8)},
    ),
    "quantized_gate": (quantized_gate, {"x": normal(3, 64), "gate": WEIGHTS, "up": WEIGHTS}),
    "quantized_heads": (
        lambda **given: quantized_heads(given["x"], [given["matrices[0]"]], [given["biases[0]"]], 4),
        {"x": normal(3, 64), "matrices[0]": WEIGHTS, "biases[0]": normal(8)},
    ),
    "quantized_matmul": (
        lambda **arrays: quantized_matmul(group_size=64, bits=4, transpose_b=True, **arrays),
        {"scales": PACKED.scales, "biases": PACKED.biases, "a": normal(3, 64), "b": PACKED.words},
    ),
}
OPTIONAL = {"bias", "residual"}
ARRAYS = [
    (name, argument)
    for name, (_, fitting) in CALLS.items()
    for argument in fitting
    if argument != "page_size"
]


def function_of(name):
    return name.split()[-1]


@pytest.mark.parametrize("name", CALLS)
def test_valid_input_is_accepted(name):
    call, fitting = CALLS[name]
    call(**fitting)


@pytest.mark.parametrize("wrong", [None, [1.0], 1, "x", np.zeros((3, 64))], ids=case_id)
@pytest.mark.parametrize(("name", "argument"), ARRAYS, ids=str)
def test_other_types_than_arrays_are_refused(name, argument, wrong):
    call, fitting = CALLS[name]
    if wrong is None and argument in OPTIONAL:
        call(**(fitting | {argument: wrong}))
        return
    with refused(re.escape(argument), TypeError, function=function_of(name)) as caught:
        call(**(fitting | {argument: wrong}))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("softmax", "x"),
        ("silu", "x"),
        ("silu_multiply", "gate"),
        ("silu_multiply", "up"),
        ("linear", "x"),
        ("linear", "w"),
        ("linear", "bias"),
        ("RMSNorm", "x"),
        ("RMSNorm", "weight"),
        ("Embedding", "weight"),
        ("paged_attention", "query"),
        ("paged_attention", "key_pages"),
        ("quantized_matmul", "a"),
        ("quantized_linear", "x"),
        ("quantized_linear", "bias"),
        ("quantized_linear", "residual"),
    ],
    ids=str,
)
def test_integers_are_refused(name, argument):
    """Of the right shape. MLX would round the other operand, or raise an error about matmul."""
    call, fitting = CALLS[name]
    with refused(argument, function=name) as caught:
        call(**(fitting | {argument: fitting[argument].astype(mx.int32)}))
    assert caught.value.got == "int32"


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("Embedding", "ids"),
        ("packed Embedding", "ids"),
        ("paged_attention", "block_table"),
        ("paged_attention", "context_lens"),
        ("quantized_matmul", "b"),
    ],
    ids=str,
)
def test_floats_are_refused_for_integers(name, argument):
    call, fitting = CALLS[name]
    with refused(argument, function=function_of(name)) as caught:
        call(**(fitting | {argument: fitting[argument].astype(mx.float32)}))
    assert caught.value.got == "float32"


@pytest.mark.parametrize("readable", [False, True], ids=["native", "readable"])
@pytest.mark.parametrize(
    "up", [normal(1, 64), normal(64), normal(3, 1), normal(3, 64).astype(mx.float16)], ids=case_id
)
def test_a_gate_takes_its_own_shape_and_type_only(up, readable):
    gate = normal(3, 64)
    if readable:
        with graph_of("tiny_llm.basics"), refused("up", function="silu_multiply"):
            silu_multiply(gate, up)
    else:
        with refused("up", function="silu_multiply"):
            silu_multiply(gate, up)
