"""`--solution mlx`: mlx-lm's model and generation loop with the same flags."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tiny_llm.cli import mlx_lm_backend
from tiny_llm.cli.exit_codes import FAILED
from tiny_llm.cli.progress import READING

from ..loading.folders import change_json, write_folder
from ..support.models.checkpoints import checkpoint
from ..support.processes.child import ROOT
from .conftest import Run

MLX = ("generate", "--json", "--solution", "mlx", "--max-tokens", "3")


def test_it_gives_the_text_of_our_model(run: Run) -> None:
    theirs = run(*MLX).record
    ours = run("generate", "--json", "--max-tokens", "3", "--dtype", "float32").record
    assert theirs["text"] == ours["text"]
    assert (theirs["solution"], theirs["loader"]) == ("mlx", None)
    for count in ("prompt_tokens", "generated_tokens", "finish_reason"):
        assert theirs[count] == ours[count]


def test_it_finds_the_module_of_a_family_without_its_own(run: Run, tmp_path: Path) -> None:
    model = ("--model", str(write_folder(tmp_path, checkpoint("mistral", layers=1))))
    ours = run("generate", "--json", "--max-tokens", "3", "--dtype", "float32", *model)
    assert run(*MLX, *model).record["text"] == ours.record["text"]


def test_it_gives_the_text_of_our_model_with_yarn(run: Run, embedded_copy: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4}
    change_json(embedded_copy, "config.json", rope_scaling=yarn)
    model = ("--model", str(embedded_copy), "--raw", "--prompt", "Once upon a time " * 4)
    theirs = run(*MLX, *model).record["text"]
    ours = run("generate", "--json", "--max-tokens", "3", "--dtype", "float32", *model).record["text"]
    assert theirs == ours != run(*MLX, *model[2:]).record["text"]
    change_json(embedded_copy, "config.json", rope_scaling=yarn | {"attention_factor": 1.2})
    ended = run(*MLX, *model)
    assert (ended.code, ended.out) == (FAILED, "")
    assert "mlx-lm ignores the attention_factor" in ended.err


def test_the_sampler_flags_have_an_effect(run: Run) -> None:
    hot = ("--sampler-temp", "20", "--seed", "1")
    greedy, random = run(*MLX).record["text"], run(*MLX, *hot).record["text"]
    assert greedy != random == run(*MLX, *hot).record["text"]
    for flags in (("--sampler-top-k", "1"), ("--sampler-top-p", "0.01"), ("--sampler-min-p", "1")):
        assert run(*MLX, *hot, *flags).record["text"] == greedy
    longer = (*MLX, "--max-tokens", "20")  # long enough to say a word again
    assert run(*longer, "--repetition-penalty", "5").record["text"] != run(*longer).record["text"]
    assert run(*MLX, "--stop", " computes").record["finish_reason"] == "stop"


def test_a_prompt_beyond_the_context_is_refused(run: Run) -> None:
    ended = run(*MLX, "--prompt", "word " * 3000)
    assert ended.code == 2
    assert "expected fewer than the context of 2048" in ended.err


def test_bench_compares_it_with_ours(run: Run) -> None:
    sizes = "--num-seqs 1 --min-input-len 4 --max-input-len 4 --min-output-len 2 --max-output-len 2".split()
    ended = run("bench", "--model", "tiny", "--compare", "mlx", *sizes)
    assert ended.code == 0, ended.err
    assert "flash attention against mlx-lm" in ended.out
    alone = run("bench", "--model", "tiny", "--solution", "mlx", *sizes)
    assert alone.code == 0
    assert "mlx-lm" in alone.out


@pytest.mark.parametrize("command", [MLX, ("bench", "--compare", "mlx"), ("bench", "--solution", "mlx")])
def test_without_mlx_lm_its_version_is_named(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm", None)  # which Python takes for "not installed"
    ended = run(*command)
    assert (ended.code, ended.out) == (FAILED, "")
    assert f"pip install {mlx_lm_backend.PINNED}" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_the_pinned_version_is_that_of_the_extra_and_the_docs() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert extras["mlx-lm"] == [mlx_lm_backend.PINNED]
    assert f"pip install {mlx_lm_backend.PINNED}" in (ROOT / "docs" / "command-line.md").read_text()


def test_prefill_uses_our_chunk_size(
    run: Run, reports: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlx_lm_backend, "prefill_chunk", lambda: 7)
    assert run(*MLX).code == 0
    assert [(READING, done) for done in (0, 7, 14)] == [report for report in reports if report[0] == READING][
        :3
    ]
