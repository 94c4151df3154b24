"""Models of the hub, against a server that speaks its protocol: downloads and the cache."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from tiny_llm.loading import LoadError, find_folder, load

from .folders import write_folder
from .hub_server import COMMIT, NAME, ORDER, assert_refused, left_behind


def test_a_download_has_the_needed_files_weights_last(hub, own_cache):
    seen: dict[str, list] = {}
    loaded = load(NAME, progress=lambda task, done, total: seen.setdefault(task, []).append((done, total)))
    assert loaded.folder == own_cache / "models--Someone--Small" / "snapshots" / COMMIT
    assert left_behind(own_cache) == set(ORDER)
    assert list(seen)[:3] == [f"querying the hub for {NAME}", "downloading settings", "downloading weights"]
    for task, names in (("downloading settings", ORDER[:-1]), ("downloading weights", ORDER[-1:])):
        total = sum(len(hub.files[name]) for name in names)
        assert seen[task] == sorted(seen[task])
        assert seen[task][-1] == (total, total)


def test_shards_are_found_through_the_index(hub, tmp_path):
    folder = write_folder(tmp_path / "sharded", shards=3)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert load(NAME).nbytes == load(str(folder)).nbytes
    assert hub.downloads("model.safetensors.index.json") == 1
    assert hub.downloads("model-00003-of-00003.safetensors") == 1


def test_shards_are_downloaded_at_the_same_time(hub, tmp_path):
    """Each of the two is sent only after the other one was requested, too."""
    folder = write_folder(tmp_path / "sharded", shards=2)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.together = threading.Barrier(2)
    load(NAME)
    assert not hub.together.broken


@pytest.mark.parametrize("offline", [None, True, False])
def test_a_complete_model_in_the_cache_needs_no_request(hub, offline):
    load(NAME)
    hub.requests.clear()
    load(NAME, offline=offline)
    assert hub.requests == []


def test_the_cache_is_shared_with_other_tools(hub, own_cache):
    """huggingface_hub finds our files there, and we find its files."""
    load(NAME)
    options = {"cache_dir": own_cache, "local_files_only": True}
    folder = snapshot_download(NAME, **options, allow_patterns=ORDER)
    assert find_folder(NAME) == Path(folder)
    shutil.rmtree(own_cache)
    snapshot_download(NAME, cache_dir=own_cache, endpoint=os.environ["HF_ENDPOINT"])
    hub.requests.clear()
    load(NAME)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HOME": "{}/home"}, "home/hub"),
        ({"HF_HOME": "{}/home", "HF_HUB_CACHE": "{}/cache"}, "cache"),
        ({"HF_HOME": "{}/home", "HUGGINGFACE_HUB_CACHE": "{}/older"}, "older"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/older", "HF_HUB_CACHE": "{}/cache"}, "cache"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "{}/xdg"}, "xdg/huggingface/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "", "HOME": "{}/me"}, "me/.cache/huggingface/hub"),
    ],
)
def test_cache_folder_from_environment(hub, tmp_path, monkeypatch, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert find_folder(NAME).is_relative_to(tmp_path / place / "models--Someone--Small")


@pytest.mark.parametrize("how", ["variable", "argument"])
def test_without_the_network_only_the_cache_counts(hub, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = True if how == "argument" else None
    assert_refused("is not in the cache, .*, and offline mode is on; run once without", offline=offline)
    assert hub.requests == []


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_partial_snapshot_is_completed(hub, missing):
    (load(NAME).folder / missing).unlink()
    assert_refused("is only in part in the cache", offline=True)
    load(NAME)
    load(NAME, offline=True)


def test_a_damaged_file_of_the_cache_is_named_with_its_place(hub):
    folder = find_folder(NAME)
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(LoadError, match=rf"^{NAME} \({folder}\): model.safetensors: is cut off: "):
        load(NAME)
