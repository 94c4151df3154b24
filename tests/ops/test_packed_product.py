"""`quantized_matmul` refuses the same arguments on every device, whichever product runs there."""

import mlx.core as mx
import pytest

from tiny_llm.quantize import quantized_matmul

from ..support.cases import normal
from ..support.products.quantized import assert_product, packed
from ..support.refusal import case_id, refused

WEIGHTS = packed(40, 128)
FITTING = {
    "scales": WEIGHTS.scales,
    "biases": WEIGHTS.biases,
    "group_size": 64,
    "bits": 4,
    "a": normal(3, 128),
    "b": WEIGHTS.words,
    "transpose_b": True,
}
HALF = mx.float16


@pytest.fixture(params=["cpu", "gpu"], autouse=True)
def device(request, monkeypatch):
    """MLX's default device, as the function sees it; the product runs on the CPU in both cases."""
    device = getattr(mx, request.param)
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(device))
    with mx.stream(mx.cpu):
        yield


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("transpose_b", {"transpose_b": False}),
        ("group_size", {"group_size": 16}),
        ("bits", {"bits": 2}),
        ("bits", {"bits": 6}),
        ("a", {"a": normal(3, 128).astype(mx.int32)}),
        ("a", {"a": mx.array(1.0)}),
        ("a", {"a": normal(3, 120)}),
        ("b", {"a": normal(3, 192)}),
        ("b", {"b": WEIGHTS.words.astype(mx.int32)}),
        ("b", {"b": WEIGHTS.words[None]}),
        ("b", {"b": WEIGHTS.words[:, :15]}),
        ("b", {"bits": 8}),
        ("scales", {"a": normal(3, 128).astype(HALF)}),
        ("scales", {"group_size": 32}),
        ("scales", {"scales": WEIGHTS.scales[:39]}),
        ("biases", {"biases": WEIGHTS.biases.astype(HALF)}),
        ("biases", {"biases": WEIGHTS.biases[:, :1]}),
    ],
    ids=case_id,
)
def test_refused_at_the_call(argument, wrong):
    with refused(argument, function="quantized_matmul"):
        quantized_matmul(**(FITTING | wrong))


def test_the_default_of_the_course_is_refused():
    arguments = {name: value for name, value in FITTING.items() if name != "transpose_b"}
    with refused("transpose_b", function="quantized_matmul"):
        quantized_matmul(**arguments)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=["rank_1", "rank_2", "rank_3"])
def test_accepted(leading):
    a = normal(*leading, 128)
    assert_product(quantized_matmul(**(FITTING | {"a": a})), a, WEIGHTS)
