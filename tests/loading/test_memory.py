"""Memory of loading: one copy of the weights, checked before, and nothing more."""

from __future__ import annotations

import json

import pytest

from tiny_llm.loading import LoadError, load
from tiny_llm.loading.weights.memory import available_bytes, group_limits
from tiny_llm.loading.weights.tree import named_parts
from tiny_llm.quantize import QuantizedWeights

from ..support.models.checkpoints import checkpoint
from ..support.processes.child import run_python
from .damage import assert_refused
from .folders import write_folder


@pytest.fixture
def system(tmp_path):
    """A system with 8000 KiB of free memory."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n")
    return tmp_path


def limit_group(system, folder: str, limit: str, name: str, statistics: str) -> None:
    group = system / "sys/fs/cgroup" / folder
    group.mkdir(parents=True)
    (group / name).write_text(limit)
    (group / "memory.stat").write_text(statistics)


def test_a_machine_without_limits(system):
    assert available_bytes(system) == 8000 * 1024


def test_without_information_the_whole_memory_counts(tmp_path):
    assert available_bytes(tmp_path) > 2**28


@pytest.mark.parametrize("limit", ["5000000", "5000000\n"])
def test_a_container_has_its_own_limit_and_a_cache_of_files_does_not_count(system, limit):
    limit_group(system, "", limit, "memory.max", "anon 1000000\nfile 3900000\nanon_thp 1\n")
    assert available_bytes(system) == 4_000_000


def test_an_older_container(system):
    statistics = "cache 3000000\nrss 1\ntotal_cache 4\ntotal_rss 2000000\n"
    limit_group(system, "memory", "6000000", "memory.limit_in_bytes", statistics)
    assert available_bytes(system) == 4_000_000


@pytest.mark.parametrize(("limit", "free"), [("max\n", 8000 * 1024), ("900000", 0)])
def test_a_container_without_a_limit_or_above_it(system, limit, free):
    limit_group(system, "", limit, "memory.max", "anon 1000000\n")
    assert available_bytes(system) == free


NEWER = ("memory.max", "anon 1000000\n")
OLDER = ("memory.limit_in_bytes", "total_rss 1000000\n")


@pytest.mark.parametrize(
    ("line", "folder", "name", "statistics"),
    [
        ("0::/user/job", "user/job", *NEWER),
        ("0::/user/job", "user", *NEWER),
        ("0::/user/job", "", *NEWER),
        ("4:memory:/user:1/job", "memory/user:1/job", *OLDER),
        ("4:cpu,memory:/user", "memory/user", *OLDER),
        ("4:memory:/elsewhere", "memory", *OLDER),
    ],
)
def test_the_control_groups_of_this_process_and_their_parents_count(system, line, folder, name, statistics):
    (system / "proc/self").mkdir()
    (system / "proc/self/cgroup").write_text(f"9:pids:/\n{line}\n")
    limit_group(system, folder, "5000000", name, statistics)
    assert available_bytes(system) == 4_000_000


def test_the_control_group_of_another_process_does_not_count(system):
    (system / "proc/self").mkdir()
    (system / "proc/self/cgroup").write_text("0::/user/job\n")
    limit_group(system, "user/other", "5000000", *NEWER)
    assert available_bytes(system) == 8000 * 1024


def test_the_limits_of_all_groups_of_this_process(system):
    (system / "proc/self").mkdir()
    (system / "proc/self/cgroup").write_text("0::/user/job\n4:cpu,memory:/old\n")
    for folder, limit in (("", "7000000"), ("user", "max\n"), ("user/job", "5000000\n"), ("other", "1")):
        limit_group(system, folder, limit, *NEWER)
    limit_group(system, "memory/old", "6000000\n", *OLDER)
    assert sorted(group_limits(system)) == [5_000_000, 6_000_000, 7_000_000]


def test_a_system_without_control_groups_has_no_limits(system):
    assert group_limits(system) == []


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(folder, monkeypatch):
    monkeypatch.setattr("tiny_llm.loading.weights.memory.available_bytes", lambda: 10_000)
    assert_refused(folder, r"the model needs 0\.0 GiB of memory, and 0\.0 GiB are free; close other programs")


def test_unused_positions_need_no_memory(tmp_path, monkeypatch):
    """A rotation table for all positions would take more memory than the weights."""
    folder = write_folder(tmp_path / "long", checkpoint(layers=1, max_position_embeddings=2**20))
    assert_needs(load(str(folder)).nbytes, folder, monkeypatch)


@pytest.mark.parametrize("bytes_per_weight", [None, 2, 4, 0.5])
def test_stored_and_converted_weights_both_count(folder, monkeypatch, bytes_per_weight):
    loaded = load(str(folder))
    copied = sum(
        QuantizedWeights.from_mlx_layer(part).dequantize().size * (bytes_per_weight or 0)
        for _, part in named_parts(loaded.mlx_model)
        if hasattr(part, "scales")
    )
    assert_needs(int(loaded.nbytes + copied), folder, monkeypatch, bytes_per_weight)


def test_a_random_model_counts_in_the_same_way(monkeypatch):
    monkeypatch.setattr("tiny_llm.loading.weights.memory.available_bytes", lambda: 2**30)
    with pytest.raises(LoadError, match=r"needs 32\.\d GiB"):  # 7.6e9 weights of 4 1/2 bits, and of 4 bytes
        load("random:qwen2-7b", bytes_per_weight=4)


def assert_needs(needed: int, folder, monkeypatch, bytes_per_weight: float | None = None) -> None:
    """A byte less is refused."""
    monkeypatch.setattr("tiny_llm.loading.weights.memory.available_bytes", lambda: needed)
    load(str(folder), bytes_per_weight=bytes_per_weight)
    monkeypatch.setattr("tiny_llm.loading.weights.memory.available_bytes", lambda: needed - 1)
    with pytest.raises(LoadError, match=r"the model needs \d+\.\d GiB of memory"):
        load(str(folder), bytes_per_weight=bytes_per_weight)


BIG = {"num_hidden_layers": 3, "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 64}
PROGRAM = """
import json, resource, sys
import mlx.core as mx
from tests.loading.folders import *
from tiny_llm.loading import load
from tiny_llm.loading.config import check_config
from tiny_llm.loading.weights.random_model import random_weights

def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

folder = Path(sys.argv[2])
if sys.argv[1] == "write":
    change_json(write_folder(folder), "config.json", **json.loads(sys.argv[3]))
    arrays = random_weights(check_config(json.loads((folder / "config.json").read_text())), lambda *_: None)
    (folder / "model.safetensors").unlink()
    write_shards(folder, arrays, 2)
else:
    before, reports = resident(), []
    nbytes = load(str(folder), progress=lambda task, done, total: reports.append(done)).nbytes
    print(nbytes, resident() - before, mx.get_peak_memory(), len(reports))
"""


def test_the_peak_is_one_copy_of_the_weights(tmp_path):
    """200 MB in two files, in a process of its own, measured as the system and as MLX see it."""
    assert run_python("-c", PROGRAM, "write", str(tmp_path), json.dumps(BIG)).stderr == ""
    result = run_python("-c", PROGRAM, "load", str(tmp_path))
    assert result.stderr == ""
    nbytes, resident, peak, reports = map(int, result.stdout.split())
    assert nbytes > 180_000_000
    assert peak <= 1.01 * nbytes
    assert resident <= 1.1 * nbytes + 20_000_000
    assert reports >= 4  # one at the beginning, and one for each 64 MB


def test_a_limit_of_addresses_counts():
    """The limit of `ulimit -v`: allocations of MLX beyond it would fail."""
    ended = run_python(
        "-c",
        "import resource; from tiny_llm.loading.weights.memory import available_bytes\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n"
        "assert 0 < available_bytes() < 2**32",
    )
    assert ended.returncode == 0, ended.stderr
