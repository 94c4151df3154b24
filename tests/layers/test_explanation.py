"""What `explain` answers: a table, one field a line, that says as much as its fields; whose product runs."""

from dataclasses import asdict, fields, replace

import mlx.core as mx
import pytest

from tiny_llm.attention import Explanation, explain, flash_attention
from tiny_llm.quantize import quantized_matmul

from ..support.cases import normal, qkv
from ..support.quantized import packed


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
def test_a_product_says_whose_kernel_runs(monkeypatch, device, path, reason):
    monkeypatch.setattr(mx, "default_device", lambda: device)
    with mx.stream(mx.cpu):  # where the lazy product stands that checks the arguments
        told = explain(quantized_matmul, *product())
    assert told.path == path
    assert reason in "; ".join(told.reasons)
    assert bool(told.reasons) == (device == mx.gpu)


def test_a_product_that_would_be_refused_has_no_explanation():
    arguments = list(product())
    arguments[2] = 48
    with mx.stream(mx.cpu), pytest.raises(ValueError, match="group_size"):
        explain(quantized_matmul, *arguments)


def test_what_nobody_can_explain_is_refused():
    with pytest.raises(ValueError, match="expected one of attention_reference, flash_attention, quantized"):
        explain(mx.matmul, *qkv())
