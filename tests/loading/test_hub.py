"""Models of the hub, against a server that speaks its protocol: downloads, the cache, what goes wrong."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from huggingface_hub import constants, snapshot_download

from tiny_llm.loading import LoadError, find_folder, load

from ..support.processes.child import run_python
from .folders import write_folder
from .hub_server import COMMIT, NAME, Hub, serving

ORDER = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
]
EXTRA = {
    "README.md": b"# Small",
    "code.py": b"print()",
    "pytorch_model.bin": b"pickle",
    "sub/model.safetensors": b"",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one small model, which `HF_ENDPOINT` names."""
    folder = write_folder(tmp_path / "published")
    hub = Hub({path.name: path.read_bytes() for path in folder.iterdir()} | EXTRA)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # read when it was imported
    monkeypatch.setenv("NO_PROXY", "*")
    with serving(hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield hub


def left_behind(cache: Path) -> set[str]:
    """The files of a snapshot, and whatever is unfinished."""
    files = {path.name for path in cache.rglob("*") if "snapshots" in path.parts and not path.is_dir()}
    return files | {path.name for path in cache.rglob("*.incomplete")}


def assert_refused(sentence: str, **options) -> None:
    with pytest.raises(LoadError, match=f"^{NAME}: .*{sentence}") as refusal:
        load(NAME, **options)
    assert str(refusal.value).isprintable()


def test_a_download_brings_what_is_needed_weights_last(hub, own_cache):
    seen: dict[str, list] = {}
    loaded = load(NAME, progress=lambda task, done, total: seen.setdefault(task, []).append((done, total)))
    assert loaded.folder == own_cache / "models--Someone--Small" / "snapshots" / COMMIT
    assert left_behind(own_cache) == set(ORDER)
    assert list(seen)[:3] == [f"asking for {NAME}", "downloading settings", "downloading weights"]
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
    """Each of the two is sent only when the other one was asked for, too."""
    folder = write_folder(tmp_path / "sharded", shards=2)
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.together = threading.Barrier(2)
    load(NAME)
    assert not hub.together.broken


@pytest.mark.parametrize("offline", [None, True, False])
def test_a_whole_model_in_the_cache_needs_no_request(hub, offline):
    load(NAME)
    hub.requests.clear()
    load(NAME, offline=offline)
    assert hub.requests == []


def test_the_cache_is_the_one_of_other_tools(hub, own_cache):
    """What huggingface_hub finds there, we have put; and what it has put, we find."""
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
def test_the_environment_says_where_the_cache_is(hub, tmp_path, monkeypatch, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert find_folder(NAME).is_relative_to(tmp_path / place / "models--Someone--Small")


@pytest.mark.parametrize("how", ["variable", "argument"])
def test_without_the_network_only_the_cache_counts(hub, monkeypatch, how):
    if how == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = True if how == "argument" else None
    assert_refused("is not in the cache, .*, and the network is forbidden; allow it once", offline=offline)
    assert hub.requests == []


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_that_is_there_in_part_is_completed(hub, missing):
    (load(NAME).folder / missing).unlink()
    assert_refused("is only in part in the cache", offline=True)
    load(NAME)
    load(NAME, offline=True)


def test_a_damaged_file_of_the_cache_is_named_with_its_place(hub):
    folder = find_folder(NAME)
    os.truncate(folder / "model.safetensors", 5000)
    with pytest.raises(LoadError, match=rf"^{NAME} \({folder}\): model.safetensors: is cut off: "):
        load(NAME)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_names_the_page_and_the_command(hub, own_cache, status):
    hub.refusal = (status, "GatedRepo")
    assert_refused("is gated: accept its terms on http://.*/Someone/Small, then log in with 'hf auth login'")
    assert left_behind(own_cache) == set()


def test_a_model_that_does_not_exist(hub, own_cache):
    with pytest.raises(LoadError, match=r"^Someone/Else: is not on the hub, http://.*, or is private"):
        load("Someone/Else")
    assert left_behind(own_cache) == set()


def test_a_model_without_safetensors(hub, own_cache):
    del hub.files["model.safetensors"]
    assert_refused("has no weights in model.safetensors files on the hub")
    assert left_behind(own_cache) == set()


def test_no_server_at_all(monkeypatch, own_cache):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert_refused(r"the download from http://127\.0\.0\.1:9 failed \(ConnectError: .*\); check the network")


def test_a_server_in_trouble(hub):
    hub.trouble = True
    assert_refused("answered with status 500; try again later")


def test_a_connection_that_breaks_is_taken_up_again(hub):
    hub.cuts = [1000]
    load(NAME)
    assert hub.downloads("model.safetensors") == 2


def test_a_download_that_ends_in_the_middle_is_no_model(hub, own_cache):
    """Neither then, nor for a later run without the network; with it, that run completes the download."""
    hub.cuts, hub.refusal_behind_a_cut = [1000], (410, "")
    assert_refused("answered with status 410")
    assert left_behind(own_cache) == set(ORDER[:-1])
    assert_refused("is not in the cache", offline=True)
    hub.refusal = None
    load(NAME)
    assert hub.downloads("tokenizer.json") == 1


def test_a_file_of_another_size_than_announced(hub, own_cache):
    hub.announced = {"model.safetensors": 123}
    assert_refused(r"failed \(OSError: Consistency check failed: file should be of size 123")
    assert left_behind(own_cache) == set(ORDER[:-1])


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_with_other_bytes_than_announced(hub, own_cache, name):
    hub.spoiled = {name: b"spoiled!"}
    assert_refused(f"{name}: is not what the hub announced, and is removed; try again")
    assert name not in left_behind(own_cache)
    hub.spoiled = {}
    load(NAME)


def test_a_disk_that_is_too_small_is_noticed_before_the_download(hub, own_cache):
    hub.announced = {"model.safetensors": 10**18}
    assert_refused("takes 931322574.6 GiB, and .* has room for .* GiB; make room, or set HF_HOME")
    assert left_behind(own_cache) == set()


def test_a_disk_that_is_full_in_the_middle(hub, own_cache):
    """A limit on the size of files stands for the end of the disk: writing fails at the same place."""
    limit = len(hub.files["model.safetensors"]) - 1000
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"from tiny_llm.loading import *\n"
        f"try: load('{NAME}')\n"
        f"except LoadError as error: print(error)"
    )
    result = run_python("-c", program)
    assert result.stdout.startswith(f"{NAME}: the disk is full (File too large); make room, or set HF_HOME")
    assert left_behind(own_cache) == set(ORDER[:-1])
    load(NAME)


def test_an_interrupt_in_the_middle(hub, own_cache):
    """It passes through, and leaves nothing that is half a file."""

    def interrupt(task: str, done: int, total: int | None) -> None:
        if task == "downloading weights":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(NAME, progress=interrupt)
    assert left_behind(own_cache) == set(ORDER[:-1])
    load(NAME)


INTERRUPTED = f"""
import os, signal, threading
from tiny_llm.loading import load

caught = threading.Event()

def interrupt(task, done, total):
    if task == "downloading weights":
        os.kill(os.getpid(), signal.SIGINT)
        caught.wait(60)

try:
    load("{NAME}", progress=interrupt)
except KeyboardInterrupt:
    caught.set()
"""


def test_ctrl_c_does_not_wait_for_a_download(hub, own_cache):
    """The main thread is free while a file is on its way; that file does not stay."""
    assert run_python("-c", INTERRUPTED).returncode == 0
    assert left_behind(own_cache) == set(ORDER[:-1])


def test_a_snapshot_in_part_is_no_success_where_the_list_of_files_fails(hub, own_cache):
    """huggingface_hub then takes the folder in the cache as it is."""
    folder = load(NAME).folder
    (folder / "model.safetensors").unlink()
    shutil.rmtree(folder.parents[1] / "trees")
    hub.files_listed = False
    program = f"from tiny_llm.loading import load; load('{NAME}')"
    assert "model.safetensors: is missing after the download; try again" in run_python("-c", program).stderr


KILLED = f"""
import os
from tiny_llm.loading import load

def kill(task, done, total):
    if task == "downloading weights":
        os.kill(os.getpid(), 15)

load("{NAME}", progress=kill)
"""


def test_what_a_killed_download_leaves_is_removed_by_the_next(hub, own_cache):
    assert run_python("-c", KILLED).returncode == -15
    assert any(name.endswith(".incomplete") for name in left_behind(own_cache))
    load(NAME)
    assert left_behind(own_cache) == set(ORDER)


def test_a_download_of_another_process_goes_on(hub, own_cache):
    """Its half of a file stays, as long as it holds the lock."""
    repository = "models--Someone--Small"
    half = own_cache / repository / "blobs" / "abc.1234.incomplete"
    lock = own_cache / ".locks" / repository / "abc.lock"
    for path in (half, lock):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with FileLock(lock):
        load(NAME)
        assert half.exists()
    (load(NAME).folder / "config.json").unlink()
    load(NAME)
    assert not half.exists()


@pytest.mark.parametrize("place", ["", "models--Someone--Small", "models--Someone--Small/blobs"])
def test_a_cache_that_cannot_be_written_is_named(hub, own_cache, place):
    """A file stands in the place of a folder; the network is not to blame."""
    path = own_cache / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert_refused(rf"{path}.* cannot be used \((File exists|Not a directory)\); mend that, or set HF_HOME")
