"""The results of `explain`: printed with one field a line, and which kernel runs a product."""

from dataclasses import asdict, fields, replace

import mlx.core as mx
import pytest

from tiny_llm.attention import (
    Explanation,
    attention_reference,
    explain,
    flash_attention,
    paged_attention,
)
from tiny_llm.quantize import quantized_matmul

from ..support.cases import normal, qkv
from ..support.products.quantized import packed


def as_printed(explanation: Explanation) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in str(explanation).splitlines())


def test_every_field_is_a_line_with_its_value():
    fused = explain(flash_attention, *qkv(), causal=True, stream=mx.cpu)
    printed = as_printed(fused)
    assert list(printed) == [field.name for field in fields(Explanation)]
    assert {name for name, value in asdict(fused).items() if printed[name] != str(value)} == {"reasons"}
    columns = {len(line) - len(printed[line.split()[0]]) for line in str(fused).splitlines()}
    assert len(columns) == 1, "values stand below each other"


def test_reasons_are_sentences_or_none():
    fused = explain(flash_attention, *qkv(), stream=mx.cpu)
    assert as_printed(fused)["reasons"] == "none"
    wide = explain(flash_attention, *qkv(E=257), stream=mx.cpu)
    assert "257" in as_printed(wide)["reasons"]
    assert as_printed(replace(fused, reasons=("one", "two")))["reasons"] == "one; two"


def product() -> tuple:
    scales, biases, group_size, bits, words = packed(8, 128)
    return scales, biases, group_size, bits, normal(3, 128), words, True


@pytest.mark.parametrize(
    ("device", "path", "reason"),
    [(mx.cpu, "cpu.quantized_matmul", ""), (mx.gpu, "mlx.quantized_matmul", "never timed")],
    ids=["cpu", "gpu"],
)
def test_the_explanation_of_a_product_names_its_kernel(monkeypatch, device, path, reason):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(device))
    with mx.stream(mx.cpu):  # for the lazy product that checks the arguments
        explanation = explain(quantized_matmul, *product())
    assert explanation.path == path
    assert reason in "; ".join(explanation.reasons)
    assert bool(explanation.reasons) == (device == mx.gpu)


def test_a_product_that_would_be_refused_has_no_explanation():
    arguments = list(product())
    arguments[2] = 48
    with mx.stream(mx.cpu), pytest.raises(ValueError, match="group_size"):
        explain(quantized_matmul, *arguments)


@pytest.mark.parametrize(
    "function", [mx.matmul, "flash_attention", None, []], ids=["matmul", "a str", "None", "a list"]
)
def test_a_function_without_an_explanation_is_refused(function):
    with pytest.raises(ValueError, match=r"expected one of attention_reference, .*, paged_attention, quant"):
        explain(function, *qkv())


@pytest.mark.parametrize(
    ("function", "arguments", "missing"),
    [
        (flash_attention, 0, "query"),
        (flash_attention, 2, "value"),
        (attention_reference, 2, "value"),
        (paged_attention, 3, "block_table"),
        (quantized_matmul, 5, "b"),
    ],
)
def test_the_error_for_a_missing_argument_names_the_explained_function(function, arguments, missing):
    with pytest.raises(TypeError, match=rf"^{function.__name__}\W.*missing .*'{missing}'"):
        explain(function, *([mx.zeros((1, 1, 1))] * arguments))


@pytest.mark.parametrize("function", [flash_attention, paged_attention])
def test_the_error_for_an_extra_argument_names_the_explained_function(function):
    with pytest.raises(TypeError, match=rf"^{function.__name__}: too many positional"):
        explain(function, *([mx.zeros((1, 1, 1))] * 9))
    with pytest.raises(TypeError, match=rf"^{function.__name__}: multiple values for argument 'query'"):
        explain(function, *qkv(), query=mx.zeros((1, 1, 1)))
