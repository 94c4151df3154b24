"""The attention kernels can be built as CUDA; tools/metal_on_cuda.py runs them."""

import re
import subprocess
import sys

import pytest

from ...support.processes.child import ROOT
from ...support.processes.tools import NVCC, need
from ..attention.run import fast_source, readable_source
from .fast_kernels import FAST_KERNELS, MASKED
from .mutants import WATCHED
from .translation import pipeline, translated

KERNEL = "flash_attention_f32_e128"


@pytest.fixture
def nvcc():
    need(NVCC)
    return NVCC.name


def test_the_source_of_the_readable_kernel_is_unchanged():
    assert readable_source() in translated(readable_source(), [KERNEL])


def test_the_source_of_the_fast_kernels_lacks_one_word():
    text = translated(fast_source(), FAST_KERNELS[MASKED], MASKED)
    kept, others = fast_source().splitlines(), set(text.splitlines())
    changed = [line for line in kept if line not in others]
    assert changed
    assert all("*" in line and line.replace("threadgroup ", "") in others for line in changed)


def test_a_function_constant_gets_its_value():
    kernels = FAST_KERNELS[MASKED]
    text = translated(fast_source(), kernels, MASKED)
    assert re.findall(r"#define metal_on_cuda_(\w+) (\d)", text) == [
        ("kMaskFeature", "3"),
        ("kWindowFeature", "1"),
        ("kSoftcapFeature", "0"),
        ("kSinksFeature", "0"),
        ("kLengthsFeature", "0"),
        ("kPaddedHeadFeature", "0"),
    ]
    assert pipeline(kernels[0], MASKED) == f"{kernels[0]}_3_1_0_0_0_0"


def test_every_buffer_comes_from_its_slot():
    text = translated(readable_source(), [KERNEL])
    slots = re.findall(r"slots\.at\[(\w+)\]", text)
    assert slots == re.findall(r"buffer\((\w+)\)", readable_source())
    assert len(set(slots)) == 7


def test_every_mutant_differs_from_the_kernel_and_the_others():
    sources = {True: fast_source(), False: readable_source()}
    texts = {watched.mutant.applied(sources[watched.is_fast]) for watched in WATCHED}
    assert len(texts) == len(WATCHED)
    assert texts.isdisjoint(sources.values())


def test_nvcc_uses_all_threadgroup_memory_and_spills_nothing(tmp_path, nvcc):
    source = tmp_path / "kernel.cu"
    source.write_text(translated(readable_source(), [KERNEL]))
    shim = f"-I{ROOT / 'tests/metal/cuda/shim'}"
    flags = ["-std=c++20", "-arch=sm_90", "-diag-suppress=1097", "-Werror=all-warnings", "-Xptxas=-v", shim]
    command = [nvcc, *flags, "-cubin", source, "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "32768 bytes smem" in report
    assert "0 bytes spill stores" in report
    assert int(re.search(r"Used (\d+) registers", report)[1]) <= 65536 // 1024


def test_the_driver_compiles_with_the_host_headers(tmp_path, nvcc):
    includes = [f"-I{ROOT / 'src/extensions/src'}", f"-I{ROOT / 'tests/metal/cuda'}"]
    source = ROOT / "tests/metal/cuda/driver.cpp"
    command = [
        nvcc,
        "-std=c++20",
        "-Werror=all-warnings",
        *includes,
        "-c",
        source,
        "-o",
        tmp_path / "driver.o",
    ]
    subprocess.run(command, check=True)


@pytest.mark.slow
def test_every_driver_can_be_built(tmp_path, nvcc):
    tool = ROOT / "tools/metal_on_cuda.py"
    subprocess.run([sys.executable, tool, "--build", "--folder", tmp_path], check=True)
    names = {"right", *(f"wrong{i}" for i in range(len(WATCHED)))}
    assert {path.name for path in tmp_path.iterdir() if not path.suffix} == names
