"""`demo`, and `tiny-llm` without a command."""

from __future__ import annotations

import pytest

from tiny_llm.cli import COMMANDS, main
from tiny_llm.cli.exit_codes import FAILED, REFUSED
from tiny_llm_tools.cli import demo

from .conftest import Run

SMALL = ("--tokens", "70", "--heads", "4", "--kv-heads", "2", "--head-dim", "16")


def test_all_three_are_measured_and_agree(run: Run) -> None:
    record = run("demo", "--json", *SMALL).record
    assert [record[size] for size in ("tokens", "heads", "kv_heads", "head_dim")] == [70, 4, 2, 16]
    for attention in ("flash", "mx_fast", "grouped"):
        assert record[attention]["seconds"] > 0
    assert record["largest_difference"] < demo.ROUNDING
    assert 0 < record["tiles_visited"] < record["tiles_total"]
    text = run("demo", *SMALL)
    assert text.code == 0
    for name in ("plain (grouped)", "mx.fast of MLX", "flash_attention", "70 tokens"):
        assert name in text.out


def test_a_wrong_result_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "mlx_attention", lambda query, *_, **__: query)
    assert run("demo", *SMALL).code == FAILED


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == REFUSED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(f"\n    {name} " in printed.err for name in COMMANDS)
