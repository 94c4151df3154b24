"""`pdm bench ranks`: one rank's program, gains over one rank, and a group that fails."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import mlx.core as mx
import pytest

from benches import ranks
from benches.contestants.engine import ranks as contestant
from tiny_llm.cli.exit_codes import Failure
from tiny_llm.loading.weights import random_model


@pytest.mark.parametrize("bits", [4, None])
def test_a_rank_reports_seconds_to_the_first_token_and_of_each_after_it(
    bits: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(random_model.SIZES, "qwen2-0.5b", (128, 192, 1, 4, 2, 32))
    with mx.stream(mx.cpu):
        contestant.main(0, ["127.0.0.1:1"], "qwen2-0.5b", bits, prompt=5, answer=4, repeats=2)
    found = json.loads(capsys.readouterr().out)
    assert found["sums"] is None
    first, step = found["ours"]
    assert 0 < step < first + 1


def test_the_shape_of_32b_divides_among_four() -> None:
    config = contestant.config_of("32b")
    assert config.num_attention_heads % 4 == config.intermediate_size % 256 == 0


def test_gains_are_over_the_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    by_size: dict[int, dict[str, Any]] = {
        1: {"sums": None, "ours": [0.4, 0.02]},
        2: {"sums": 0.005, "ours": [0.2, 0.01], "mlx-lm": [0.3, 0.03]},
    }
    monkeypatch.setattr(ranks, "figures", lambda size, *_: by_size[size])
    monkeypatch.setattr(mx, "is_available", lambda device: True)
    options = Namespace(models=["32b"], weights=["4-bit"], ranks=[1, 2], prompt=100, answer=8, repeats=1)
    alone, two = ranks.rows(options)
    assert (alone["prefill"], alone["decode"], alone["decode_gain"]) == (250, 50, 1)
    assert (two["prefill_gain"], two["decode_gain"], two["sums"]) == (2, 2, 0.5)
    assert two["target"] == "prefill >= 1.7x: met, decode >= 1.6x: met"
    assert "| 2.00x | 50% |" in ranks.measured_table({"rows": [two]})


def test_a_group_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Namespace(prompt=1, answer=1, repeats=1)
    with pytest.raises(Failure, match="no-such-model on 2 ranks: a process has failed"):
        ranks.figures(2, "no-such-model", "4-bit", options)
