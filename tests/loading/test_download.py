"""Downloads that fail, are interrupted or are killed: one clear sentence, and nothing broken in the cache."""

from __future__ import annotations

import shutil

import pytest
from filelock import FileLock

from tiny_llm.loading import LoadError, load

from ..support.processes.child import run_python
from .hub_server import NAME, ORDER, assert_refused, left_behind


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
    assert_refused("has no model.safetensors files on the hub")
    assert left_behind(own_cache) == set()


def test_no_server_at_all(monkeypatch, own_cache):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert_refused(r"the download from http://127\.0\.0\.1:9 failed \(ConnectError: .*\); check the network")


def test_an_error_of_the_server(hub):
    hub.trouble = True
    assert_refused("answered with status 500; try again later")


def test_a_broken_connection_is_resumed(hub):
    hub.cuts = [1000]
    load(NAME)
    assert hub.downloads("model.safetensors") == 2


def test_an_incomplete_download_is_not_used(hub, own_cache):
    """Not by the same run, nor by a later one without the network; with it, the later run completes it."""
    hub.cuts, hub.refusal_after_cut = [1000], (410, "")
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
    """A limit on file sizes in place of a full disk: writing fails in the same way."""
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
    """It reaches the caller, and leaves no partial file."""

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
    """The main thread gets it while a file is downloaded; that file is not kept."""
    assert run_python("-c", INTERRUPTED).returncode == 0
    assert left_behind(own_cache) == set(ORDER[:-1])


def test_a_partial_snapshot_is_refused_if_the_files_cannot_be_listed(hub, own_cache):
    """huggingface_hub then returns the folder in the cache as it is."""
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


def test_the_download_of_another_process_is_not_disturbed(hub, own_cache):
    """Its partial file is kept as long as it holds the lock."""
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
    """There is a file in the place of a folder; the error must not blame the network."""
    path = own_cache / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert_refused(rf"{path}.* cannot be used \((File exists|Not a directory)\); fix that, or set HF_HOME")
