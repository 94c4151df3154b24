"""The tables of docs/metal-roofline.md are up to date, and its counts agree with the kernels."""

import pytest

from ..support.processes.child import ROOT
from ..support.processes.tools import CLANG, NM, need
from .attention.run import fast_source, readable_source
from .harness.toolchain import COMPILERS, objects_of, threadgroup_arrays
from .product.run import source as quantized_source


@pytest.fixture
def roofline(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import metal_roofline

    return metal_roofline


def source_of(name):
    if name.startswith("attention_"):
        return fast_source()
    return quantized_source() if name.startswith("quantized_") else readable_source()


def test_the_tables_are_up_to_date(roofline):
    document = roofline.DOCUMENT.read_text()
    assert roofline.renewed(document) == document


def test_an_outdated_table_is_found(roofline):
    document = roofline.DOCUMENT.read_text().replace("| M1 | 8 |", "| M1 | 9 |")
    assert roofline.renewed(document) != document


def test_the_multiply_adds_of_all_units_cover_the_operations(roofline):
    for kernel in roofline.KERNELS:
        assert kernel.need["arithmetic"] * kernel.units * 2 >= kernel.operations, kernel.name


def test_the_threadgroup_memory_equals_the_compilers(roofline):
    need(CLANG, NM)
    for kernel in roofline.KERNELS:
        name = kernel.source_name
        unoptimised = objects_of(COMPILERS["clang"], source_of(name)) / "unoptimised.o"
        arrays = threadgroup_arrays(unoptimised, name)
        assert sum(size for _, size in arrays.values()) == kernel.threadgroup_bytes, name
