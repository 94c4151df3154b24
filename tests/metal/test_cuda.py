"""The readable kernel as CUDA: that it can be built is checked here; tools/metal_on_cuda.py runs it."""

import re
import shutil
import subprocess
import sys

import pytest

from ..support.child import ROOT
from .cuda.mutants import WATCHED
from .cuda.translation import translated
from .flash_attention import readable_source

KERNEL = "flash_attention_f32_e128"
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")


def test_the_text_of_the_kernel_is_not_touched():
    assert readable_source() in translated(readable_source(), [KERNEL])


def test_every_buffer_comes_from_the_slot_that_the_kernel_names():
    text = translated(readable_source(), [KERNEL])
    slots = re.findall(r"slots\.at\[(\w+)\]", text)
    assert slots == re.findall(r"buffer\((\w+)\)", readable_source())
    assert len(set(slots)) == 7


def test_the_mutants_are_other_texts():
    texts = {watched.mutant.applied(readable_source()) for watched in WATCHED}
    assert len(texts) == len(WATCHED)
    assert readable_source() not in texts


@needs_nvcc
def test_nvcc_compiles_it_into_all_of_the_threadgroup_memory_without_spills(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text(translated(readable_source(), [KERNEL]))
    shim = f"-I{ROOT / 'tests/metal/cuda/shim'}"
    flags = ["-std=c++20", "-arch=sm_90", "-diag-suppress=1097", "-Werror=all-warnings", "-Xptxas=-v", shim]
    command = ["nvcc", *flags, "-cubin", source, "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "32768 bytes smem" in report
    assert "0 bytes spill stores" in report
    assert int(re.search(r"Used (\d+) registers", report)[1]) <= 65536 // 1024


@needs_nvcc
@pytest.mark.slow
def test_the_driver_and_every_mutant_can_be_built(tmp_path):
    tool = ROOT / "tools/metal_on_cuda.py"
    subprocess.run([sys.executable, tool, "--build", "--folder", tmp_path], check=True)
    assert (tmp_path / "right").exists()
    assert len(list(tmp_path.glob("wrong?"))) == len(WATCHED)
