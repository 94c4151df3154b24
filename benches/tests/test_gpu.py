"""`pdm bench gpu`: rows, ratios and their targets, and the loops of both contestants."""

from __future__ import annotations

import mlx.core as mx
import pytest

from benches import gpu
from benches.contestants.gpu_models import our_batch, our_tokens, random_models, their_batch, their_tokens
from tiny_llm.loading.weights import random_model
from tiny_llm.runtime.gpu import as_on_gpu


def test_a_ratio_is_the_median_over_pairs_and_above_1_for_the_faster() -> None:
    rates = gpu.row("decode", "tok/s", [(200.0, 100.0), (30.0, 10.0), (300.0, 300.0)], 1.5)
    assert (rates["ours"], rates["mlx-lm"], rates["ratio"], rates["met"]) == (200.0, 100.0, 2.0, True)
    times = gpu.row("prompt", "ms", [(20.0, 10.0)], 1.0)
    assert (times["ratio"], times["target"], times["met"]) == (0.5, ">= 1.00x", False)


def test_runs_alternate_after_one_to_warm_up() -> None:
    calls: list[str] = []

    def run(name: str) -> tuple[float, ...]:
        calls.append(name)
        return (float(len(calls)),)

    assert gpu.in_turn(lambda: run("a"), lambda: run("b"), 2) == [((3.0,), (4.0,)), ((5.0,), (6.0,))]
    assert "".join(calls) == "ababab"


@pytest.mark.parametrize("bits", [4, None])
def test_both_contestants_make_the_tokens_that_are_counted(
    bits: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(random_model.SIZES, "qwen2-0.5b", (128, 192, 1, 4, 2, 32))
    with mx.stream(mx.cpu), as_on_gpu():
        models = random_models("qwen2-0.5b", bits)
        prompts = [gpu.prompt_of(5 + i, seed=i) for i in range(3)]
        assert len(list(our_tokens(models.ours, prompts[0], 4))) == 4
        assert len(list(their_tokens(models.theirs, prompts[0], 4))) == 4
        assert sum(our_batch(models.ours, prompts, 4)) == 12
        assert sum(their_batch(models.theirs, prompts, 4)) == 12


def test_without_a_gpu_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mx, "is_available", lambda device: False)
    with pytest.raises(SystemExit) as exit_code:
        gpu.main([])
    assert exit_code.value.code == 2
    assert "MLX finds no GPU on this machine" in capsys.readouterr().err
