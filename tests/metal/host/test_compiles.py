"""tools/check_metal_host.py, which compiles the host side with MLX's headers for macOS, finds errors."""

import importlib.util
import os
import re
from functools import cache

import pytest

from ...support.processes.child import ROOT
from ...support.processes.tools import CLANG, LLVM_NM, need

pytestmark = pytest.mark.slow


@cache
def checker():
    specification = importlib.util.spec_from_file_location(
        "check_metal_host", ROOT / "tools/check_metal_host.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def package():
    """The headers; without them CI fails, and other runs skip."""
    need(CLANG, LLVM_NM)
    try:
        return checker().package()
    except checker().Unavailable as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


def test_a_name_that_a_unity_build_defines_twice_is_an_error(package, tmp_path):
    units = checker().units_in_place(tmp_path)
    included = [name for unit in units for name in re.findall(r"(\w+\.cpp)\"", unit.read_text())]
    assert sorted(included) == sorted(path.name for path in (checker().SOURCES / "metal").glob("*.cpp"))
    exported = checker().exported_names(package)
    for unit in units:
        assert checker().complaints(unit, package, exported) == []
        twice = "namespace { int twice() { return 1; } }\n"
        unit.write_text(twice + unit.read_text() + twice)
        (found,) = checker().complaints(unit, package, exported)
        assert "redefinition of 'twice'" in found


def complaints(package, tmp_path, **changes: str) -> list[str]:
    """The complaints about device.cpp with its call of add_temporary, or an include, replaced."""
    text = (checker().SOURCES / "metal/device.cpp").read_text()
    for old, new in {
        "encoder.add_temporary(temporary)": changes.get("call"),
        '#include "mlx/backend/metal/device.h"': changes.get("include"),
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new or old)
    (tmp_path / "device.cpp").write_text(text)
    return checker().complaints(tmp_path / "device.cpp", package, checker().exported_names(package))


def test_the_unchanged_file_passes(package, tmp_path):
    assert complaints(package, tmp_path) == []


def test_a_missing_member_function_is_an_error(package, tmp_path):
    (found,) = complaints(package, tmp_path, call="encoder.add_temporarily(temporary)")
    assert "no member named 'add_temporarily'" in found


def test_one_argument_too_many_is_an_error(package, tmp_path):
    (found,) = complaints(package, tmp_path, call="encoder.add_temporary(temporary, 1)")
    assert "too many arguments" in found


def test_a_function_that_the_library_does_not_export_is_an_error(package, tmp_path):
    """The package's header declares it, but a library that links to it would not load on a Mac."""
    call = "encoder.add_temporary(mx::contiguous_copy_gpu(temporary, stream))"
    include = '#include "mlx/backend/metal/device.h"\n#include "mlx/backend/gpu/copy.h"'
    found = complaints(package, tmp_path, call=call, include=include)
    assert found == ["device.cpp: mlx::core::contiguous_copy_gpu is not exported by MLX's library for macOS"]
