"""`export`: the same logits from a dense folder, and never half of one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tiny_llm import cli as commands
from tiny_llm.cli.exit_codes import REFUSED
from tiny_llm.loading import Checkpoint, export, load
from tiny_llm.models import dispatch_model

from .conftest import Run

IDS = mx.array([[1, 300, 301, 302, 9, 4000]])


def logits(checkpoint: Checkpoint) -> np.ndarray:
    model = dispatch_model(checkpoint.name, checkpoint.mlx_model, 1, dtype=mx.float32)
    return np.array(model(IDS))


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load("tiny")


@pytest.mark.parametrize("max_bytes", [export.MAX_SHARD_BYTES, 20_000_000], ids=["one file", "several files"])
def test_our_loader_gets_the_same_logits_from_the_dense_folder(
    run: Run, tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    monkeypatch.setattr(export, "MAX_SHARD_BYTES", max_bytes)
    folder = tmp_path / "dense"
    ended = run("export", str(folder))
    assert ended.code == 0, ended.err
    assert all(line.startswith("writing weights") for line in ended.err.splitlines())  # on a slow machine
    assert str(folder) in ended.out
    dense = load(str(folder))
    assert not hasattr(dense.mlx_model.model.embed_tokens, "scales")
    np.testing.assert_array_equal(logits(dense), logits(tiny))
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (max_bytes < 10**9)
    assert list(tmp_path.iterdir()) == [folder]


def test_the_dtype_is_that_of_the_weights_and_the_config(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    assert run("export", str(folder), "--dtype", "bfloat16").code == 0
    assert {array.dtype for array in mx.load(str(folder / "model.safetensors")).values()} == {mx.bfloat16}
    config = json.loads((folder / "config.json").read_text())
    assert (config["dtype"], config["torch_dtype"]) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_the_config_of_the_source_does_not_contradict_the_weights(
    run: Run, embedded_copy: Path, tmp_path: Path, name: str
) -> None:
    source = embedded_copy / "config.json"
    config = {key: value for key, value in json.loads(source.read_text()).items() if "dtype" not in key}
    source.write_text(json.dumps({**config, name: "float16"}))
    folder = tmp_path / "dense"
    assert run("export", "--model", str(embedded_copy), str(folder), "--dtype", "bfloat16").code == 0
    written = json.loads((folder / "config.json").read_text())
    assert {value for key, value in written.items() if "dtype" in key} == {"bfloat16"}


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for target in (tmp_path, tmp_path / "mine"):
        ended = run("export", str(target))
        assert ended.code == REFUSED
        assert "already exists and is not empty" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_parent_that_is_missing_and_random_weights_are_refused(run: Run, tmp_path: Path) -> None:
    ended = run("export", str(tmp_path / "a" / "b"))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert "is not a directory" in ended.err
    ended = run("export", "--model", "random:qwen2-0.5b", str(tmp_path / "c"))
    assert (ended.code, ended.out) == (REFUSED, "")
    assert "--model: got random:qwen2-0.5b, expected a model that has files" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert run("export", str(folder)).code == 0
    assert (folder / "model.safetensors").exists()


def test_the_current_folder_and_a_dangling_link_are_filled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run("export", ".").code == 0
    assert (tmp_path / "here" / "model.safetensors").exists()
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there")
    assert run("export", str(link)).code == 0
    assert (tmp_path / "there" / "model.safetensors").exists()
    assert link.is_symlink()


def test_the_target_is_checked_before_the_model_is_loaded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands.export, "load", lambda *_, **__: pytest.fail("it was loaded"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a" / "b")
    assert f"{tmp_path / 'a'}: is not a directory" in run("export", str(link)).err
    assert "already exists and is not empty" in run("export", str(tmp_path)).err


def test_random_weights_have_no_files_to_copy(tiny: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(export.ExportError, match="got random weights"):
        export.export_dense(replace(tiny, folder=None), tmp_path / "dense")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_is_interrupted_leaves_nothing(tiny: Checkpoint, tmp_path: Path) -> None:
    def interrupt(task: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export.export_dense(tiny, tmp_path / "dense", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_is_reported_before_writing(
    tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = export.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(export.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    with pytest.raises(export.ExportError, match=r"0\.0 GB free, the weights take 0\.1 GB"):
        export.export_dense(tiny, tmp_path / "dense")
    assert list(tmp_path.iterdir()) == []
