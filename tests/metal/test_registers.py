"""The arrays of the fast kernels can stay in registers: after loop unrolling, none is in memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ..support.processes.tools import CLANG, need
from .attention.run import fast_source
from .harness.toolchain import OPENCL_CPP, SHIM
from .product.run import source as quantized_source

# All functions are inlined, and loops around SIMD operations may be unrolled.
AS_ON_A_GPU = (*OPENCL_CPP, "-O2", "-Dnoduplicate=convergent", *"-mllvm -inline-threshold=100000".split())


def arrays_in_memory(text: str, folder: Path) -> list[str]:
    """The variables on a kernel's stack."""
    need(CLANG)
    path = folder / "kernel.metal"
    path.write_text(text)
    command = (CLANG.name, *AS_ON_A_GPU, f"-I{SHIM}", "-w", "-S", "-emit-llvm", path, "-o", "-")
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"^define .*spir_kernel", result.stdout, re.M)
    return re.findall(r"= alloca (.*),", result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("source", [fast_source, quantized_source], ids=["attention", "quantized product"])
def test_no_array_is_left_in_memory(source, tmp_path):
    assert arrays_in_memory(source(), tmp_path) == []


@pytest.mark.slow
def test_an_array_with_a_dynamic_index_is_found(tmp_path):
    """The index of the fragment is known only at run time."""
    text = fast_source()
    assert text.count("q[of_query]") == 1
    assert arrays_in_memory(text.replace("q[of_query]", "q[row & 1]"), tmp_path)
