"""An explanation reads as a table, one field a line, that says as much as its fields."""

from dataclasses import asdict, fields, replace

import mlx.core as mx

from tiny_llm.attention import Explanation, explain, flash_attention

from ..support.cases import qkv


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
