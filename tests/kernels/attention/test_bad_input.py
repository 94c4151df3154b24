"""Every wrong shape, dtype, option or length is refused at the call with an error that names the argument."""

from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm.attention import attention_reference, explain, flash_attention

from ...support.cases import lengths, normal, qkv
from ...support.refusal import case_id, refused
from ...support.tolerance import FLOOR, assert_close, to_float64

FUNCTIONS = pytest.mark.parametrize(
    "function", [flash_attention, attention_reference], ids=lambda f: f.__name__
)
B, HEADS, KV_HEADS, L, S, E = 2, 4, 2, 33, 65, 16


def inputs(**changes):
    q, k, v = qkv(batch=(B,), heads=HEADS, kv_heads=KV_HEADS, L=L, S=S, E=E)
    return {"query": q, "key": k, "value": v} | changes


SHAPES = {
    "query of rank 2": ("query", {"query": normal(L, E)}),
    "query of rank 0": ("query", {"query": mx.array(1.0)}),
    "key of another rank": ("key", {"key": normal(KV_HEADS, S, E)}),
    "value of another rank": ("value", {"value": normal(1, B, KV_HEADS, S, E)}),
    "key of another batch": ("key", {"key": normal(3, KV_HEADS, S, E)}),
    "key of a batch to broadcast": ("key", {"key": normal(1, KV_HEADS, S, E)}),
    "value of another batch": ("value", {"value": normal(3, KV_HEADS, S, E)}),
    "value of other heads": ("value", {"value": normal(B, 4, S, E)}),
    "value of another length": ("value", {"value": normal(B, KV_HEADS, S - 1, E)}),
    "key of another head size": ("key", {"key": normal(B, KV_HEADS, S, E + 1)}),
    "heads that do not divide": ("(query|key)", {"key": normal(B, 3, S, E), "value": normal(B, 3, S, E)}),
    "more key heads than heads": ("(query|key)", {"key": normal(B, 8, S, E), "value": normal(B, 8, S, E)}),
    "no heads": ("query", {"query": normal(B, 0, L, E)}),
    "no key heads": ("key", {"key": normal(B, 0, S, E), "value": normal(B, 0, S, E)}),
    "no head size": ("query", {"query": normal(B, HEADS, L, 0), "key": normal(B, KV_HEADS, S, 0),
                               "value": normal(B, KV_HEADS, S, 0)}),
}  # fmt: skip

OPTIONS = {
    "scale nan": ("scale", {"scale": float("nan")}),
    "scale inf": ("scale", {"scale": float("inf")}),
    "scale beyond float32": ("scale", {"scale": 1e300}),
    "mask of another name": ("mask", {"mask": "full"}),
    "mask with an empty name": ("mask", {"mask": ""}),
    "mask of int": ("mask", {"mask": mx.ones((L, S), dtype=mx.int32)}),
    "mask of other rows": ("mask", {"mask": mx.zeros((L + 1, S))}),
    "mask of other keys": ("mask", {"mask": mx.zeros((L, S + 1))}),
    "mask of too many axes": ("mask", {"mask": mx.zeros((1, B, HEADS, L, S))}),
    "mask of key heads": ("mask", {"mask": mx.zeros((B, KV_HEADS, L, S))}),
    "mask of no keys": ("mask", {"mask": mx.zeros((L, 0))}),
    "window 0": ("window", {"window": 0}),
    "window -1": ("window", {"window": -1}),
    "window (-2, 0)": ("window", {"window": (-2, 0)}),
    "window (0, -2)": ("window", {"window": (0, -2)}),
    "softcap 0": ("softcap", {"softcap": 0.0}),
    "softcap negative": ("softcap", {"softcap": -1.0}),
    "softcap nan": ("softcap", {"softcap": float("nan")}),
    "softcap inf": ("softcap", {"softcap": float("inf")}),
    "sinks of key heads": ("sinks", {"sinks": normal(KV_HEADS)}),
    "sinks of too many heads": ("sinks", {"sinks": normal(HEADS + 1)}),
    "sinks of int": ("sinks", {"sinks": mx.zeros((HEADS,), dtype=mx.int32)}),
    "on_fallback of another name": ("on_fallback", {"on_fallback": "ignore"}),
}
for name in ("q_lens", "kv_start", "kv_lens"):
    OPTIONS |= {
        f"{name} of another batch": (name, {name: lengths(1, 2, 3)}),
        f"{name} of too many axes": (name, {name: mx.zeros((B, 1), dtype=mx.int32)}),
        f"{name} of float": (name, {name: mx.zeros((B,))}),
        f"{name} of uint8": (name, {name: mx.zeros((B,), dtype=mx.uint8)}),
        f"{name} of bool": (name, {name: mx.zeros((B,), dtype=mx.bool_)}),
        f"{name} negative": (name, {name: [0, -1]}),
        f"{name} too long": (name, {name: [0, S + 1]}),
    }
OPTIONS["keys beyond the end"] = ("kv_lens", {"kv_start": [0, 10], "kv_lens": [S, S - 9]})
OPTIONS["queries beyond the end"] = ("q_lens", {"q_lens": [0, L + 1]})

CASES = SHAPES | OPTIONS


@FUNCTIONS
@pytest.mark.parametrize(("argument", "changes"), CASES.values(), ids=CASES)
def test_refused_at_the_call(argument, changes, function):
    with refused(argument, function=function.__name__):
        function(**inputs(**changes))


@FUNCTIONS
@pytest.mark.parametrize(
    "changes",
    [
        {"mask": [[0.0]]},
        {"mask": 1.0},
        {"mask": True},
        {"window": "causal"},
        {"window": 1.5},
        {"window": True},
        {"window": (True, 0)},
        {"window": (1.0, 0)},
        {"window": (1,)},
        {"window": (1, 2, 3)},
        {"window": (None, 0)},
        {"window": np.array([1, 2])},
        {"window": (np.array([1, 2]), 0)},
        {"q_lens": "12"},
        {"q_lens": 1},
        {"q_lens": [np.array([1, 2])]},
        {"kv_start": {0: 1}},
        {"kv_start": [True, False]},
        {"kv_lens": 1.5},
        {"kv_lens": [0, 1.5]},
        {"kv_lens": [None, 1]},
        {"scale": 10**400},
        {"softcap": 10**400},
    ],
    ids=case_id,
)
def test_values_of_the_wrong_kind_are_refused(function, changes):
    (argument,) = changes
    with refused(argument, function=function.__name__) as caught:
        function(**inputs(**changes))
    assert "\n" not in str(caught.value)


@FUNCTIONS
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"query": [1.0]}, "got a list, expected an mlx array"),
        ({"key": [1.0]}, "got a list, expected an mlx array"),
        ({"value": None}, "got None, expected an mlx array"),
        ({"sinks": 1.0}, "got a float, expected an mlx array or None"),
        ({"causal": "yes"}, "got a str, expected True or False"),
        ({"causal": None}, "got None, expected True or False"),
        ({"deterministic": 1}, "got an int, expected True or False"),
        ({"batch_invariant": "no"}, "got a str, expected True or False"),
        ({"return_lse": 1}, "got an int, expected True or False"),
        ({"softcap": "no"}, "got a str, expected a finite number above 0, or None"),
        ({"softcap": True}, "got a bool, expected a finite number above 0, or None"),
        ({"softcap": [1.0]}, "got a list, expected a finite number above 0, or None"),
        ({"softcap": mx.array(1.0)}, "got an array, expected a finite number above 0, or None"),
        ({"on_fallback": None}, "got None, expected 'error', 'warn' or 'allow'"),
        ({"on_fallback": ["warn"]}, "got a list, expected 'error', 'warn' or 'allow'"),
        ({"stream": "cpu"}, "got a str, expected a stream or device of MLX, or None"),
        ({"stream": 0}, "got an int, expected a stream or device of MLX, or None"),
        ({"scale": [1.0]}, "got a list, expected a number or an array without axes"),
        ({"scale": True}, "got a bool, expected a number or an array without axes"),
        ({"scale": 1j}, "got a complex, expected a number or an array without axes"),
        ({"scale": "causal"}, r"got 'causal', expected .*; did you mean mask="),
        ({"scale": mx.ones((L, S), dtype=mx.bool_)}, r"got .*bool.*; did you mean mask="),
        ({"scale": mx.zeros((L, S))}, r"got .*; did you mean mask="),
    ],
    ids=lambda x: case_id(x) if isinstance(x, dict) else "",
)
def test_the_error_of_a_wrong_type_is_one_line(function, changes, text):
    (argument,) = changes
    with pytest.raises(TypeError, match=rf"^{function.__name__}: {argument}: {text}[^\n]*$"):
        function(**inputs(**changes))


@pytest.mark.parametrize(
    "options",
    [
        {"scale": np.float32(0.5), "softcap": np.int32(3)},
        {"scale": Fraction(1, 2), "softcap": 3},
        {"window": np.int64(20), "q_lens": np.array([3, L]), "kv_lens": (S, 9)},
        {"window": [20, -1], "stream": mx.default_stream(mx.cpu)},
        {"window": 2**70, "stream": mx.Device(mx.cpu)},
        {"causal": True, "stream": mx.new_thread_local_stream(mx.cpu)},
    ],
    ids=case_id,
)
def test_all_kinds_of_numbers_and_streams_are_accepted(options):
    out = flash_attention(**inputs(), **options)
    reference = to_float64(attention_reference(**inputs(), **options))
    assert_close(out, reference, floor=2 * FLOOR[mx.float32])


@FUNCTIONS
@pytest.mark.parametrize("argument", ["k_quant", "v_quant"])
def test_options_without_a_kernel_are_refused(function, argument):
    """Quantized keys and values: the names are reserved."""
    function(**inputs(), **{argument: None})
    with refused(argument, NotImplementedError, function=function.__name__):
        function(**inputs(), **{argument: (mx.ones(1), mx.ones(1), 4, 64)})


def test_explain_names_an_unknown_option_and_the_known_ones():
    with pytest.raises(TypeError, match=r"^flash_attention: got an unknown option 'dropout', .*causal"):
        explain(flash_attention, **inputs(), dropout=0.1)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError):
        flash_attention(**inputs(), dropout=0.1)


@FUNCTIONS
@pytest.mark.parametrize("values", [(0, S + 1), (-1, 0), (0, 2**32 + 1)], ids=str)
def test_computed_lengths_are_checked_at_the_call(values, function):
    with refused("kv_lens", function=function.__name__):
        function(**inputs(), kv_lens=mx.array(values, dtype=mx.int64))


def test_lengths_in_64_bits_do_not_wrap():
    beyond = mx.array([0, 2**32 + 5], dtype=mx.int64)
    with pytest.raises(ValueError, match=r"^flash_attention: kv_lens: got 4294967301"):
        flash_attention(**inputs(), kv_lens=beyond)


def test_the_reference_cannot_promise_batch_invariance():
    with refused("batch_invariant", function="attention_reference"):
        attention_reference(**inputs(), batch_invariant=True)
    plan = explain(attention_reference, **inputs(), batch_invariant=True)
    assert any("batch_invariant" in reason and "refused" in reason for reason in plan.reasons)
    assert not explain(flash_attention, **inputs(), batch_invariant=True).reasons


def test_a_list_that_contains_itself_is_refused():
    endless: list = []
    endless.append(endless)
    with refused("q_lens"):
        flash_attention(**inputs(), q_lens=endless)


def test_a_device_without_a_kernel_is_named():
    if mx.is_available(mx.gpu):
        pytest.skip("MLX has a GPU here")
    with pytest.raises((RuntimeError, ValueError), match=r"(?i)gpu"):
        mx.eval(flash_attention(**inputs(), stream=mx.gpu))


@pytest.mark.parametrize("axis", range(4))
def test_sizes_of_zero_neither_crash_nor_hang(axis):
    shape = [B, HEADS, L, E]
    shape[axis] = 0
    query = mx.zeros(shape)
    if axis in (1, 3):  # heads and head size
        with refused("query"):
            flash_attention(query, query, query)
    else:
        assert flash_attention(query, query, query).tolist() == query.tolist()


def test_huge_sizes_of_broadcast_inputs_neither_crash_nor_hang():
    huge = mx.broadcast_to(mx.zeros((1, 1, 1)), (1, 2**31 - 1, 1))
    with pytest.raises((RuntimeError, ValueError, MemoryError)):
        mx.eval(flash_attention(mx.broadcast_to(mx.zeros((1, 1, 1)), (2**20, 2**20, 256)), huge, huge))


@pytest.mark.parametrize("given", [np.zeros((64, 64)), list(range(10_000))], ids=["array", "list"])
def test_a_long_value_is_cut_to_one_line_in_the_message(given):
    with pytest.raises((TypeError, ValueError)) as refusal:
        flash_attention(**inputs(mask=given))
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300
    assert type(given).__name__ in str(refusal.value)
