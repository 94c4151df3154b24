"""The facts of a GPU from the dictionaries of MLX's two back ends, and where they are shown."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from tiny_llm.cli.info import as_text
from tiny_llm.runtime.gpu import describe_gpu, gpu_facts, gpu_line
from tiny_llm.runtime.installation import check_installation
from tiny_llm_tools.benchmark.report import table

# The keys are those of mlx/backend/{cuda,metal}/device_info.cpp.
CUDA: dict[str, str | int] = {
    "device_name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-0",
    "architecture": "sm_90",
    "pci_bus_id": "0000:00:00.0",
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "free_memory": 80_000_000_000,
    "total_memory": 85_520_000_000,
}
METAL: dict[str, str | int] = {
    "device_name": "Apple M2 Pro",
    "architecture": "applegpu_g14s",
    "max_buffer_length": 9_500_000_000,
    "max_recommended_working_set_size": 22_900_000_000,
    "memory_size": 34_359_738_368,
    "resource_limit": 499000,
}
LINES = {
    "CUDA": "NVIDIA H100 80GB HBM3, CUDA back end, sm_90, 85.5 GB of memory, 80.0 GB available",
    "Metal": "Apple M2 Pro, Metal back end, applegpu_g14s, 34.4 GB of memory, 22.9 GB available",
}


def test_cuda_reports_the_memory_that_is_free_now() -> None:
    assert describe_gpu(CUDA) == {
        "name": "NVIDIA H100 80GB HBM3",
        "back_end": "CUDA",
        "architecture": "sm_90",
        "memory_bytes": 85_520_000_000,
        "available_memory_bytes": 80_000_000_000,
    }


def test_metal_reports_the_largest_working_set() -> None:
    assert describe_gpu(METAL) == {
        "name": "Apple M2 Pro",
        "back_end": "Metal",
        "architecture": "applegpu_g14s",
        "memory_bytes": 34_359_738_368,
        "available_memory_bytes": 22_900_000_000,
    }


@pytest.mark.parametrize("info", [CUDA, METAL], ids=["cuda", "metal"])
def test_the_line_names_name_back_end_and_memory(info: dict[str, str | int]) -> None:
    facts = describe_gpu(info)
    assert gpu_line(facts) == LINES[facts["back_end"]]


def test_the_report_of_an_installation_has_them() -> None:
    report, facts = check_installation(), gpu_facts()
    assert (report["gpu"] is None) == (facts is None) == (not mx.is_available(mx.gpu))
    if facts is not None:
        assert {**report["gpu"], "available_memory_bytes": 0} == {**facts, "available_memory_bytes": 0}
    report["gpu"] = describe_gpu(METAL)
    assert f"gpu               {LINES['Metal']}" in as_text(report).splitlines()
    report["gpu"] = None
    assert [line for line in as_text(report).splitlines() if line.startswith("gpu")] == []


@pytest.mark.parametrize(("device", "shown"), [("gpu", True), ("cpu", False)])
def test_the_table_of_a_benchmark_names_the_gpu_that_computed(device: str, shown: bool) -> None:
    contestant: dict[str, Any] = {
        "name": "flash",
        "requests": 1,
        "prompt_tokens": 2,
        "output_tokens": 3,
        "wall_seconds": 1.0,
        "output_tokens_per_second": 3.0,
        "total_tokens_per_second": 5.0,
        "prefill_tokens_per_second": 2.0,
        "decode_tokens_per_second": None,
    }
    record = {
        "setting": "tiny",
        "device": device,
        "installation": {"gpu": describe_gpu(CUDA)},
        "contestants": [contestant],
        "ratios": [],
    }
    assert (LINES["CUDA"] in table(record).splitlines()) == shown
