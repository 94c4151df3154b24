"""Tests of missing tools are skipped, no others are, and a run may require a tool."""

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ..metal.harness import toolchain
from ..metal.harness.toolchain import CLANG_RUNTIME, COMPILERS, GXX_WITH_HALF, TOOLS, runs_kernels
from ..support.processes import tools
from ..support.processes.child import ROOT, run_python
from ..support.processes.tools import (
    CLANG,
    DPKG,
    GXX,
    NM,
    NVCC,
    REQUIRED,
    Tool,
    builds_programs,
    call,
    lacking,
    need,
)

# Tests that together use every tool.
ADDRESS_SPACES = "tests/metal/test_lint.py::test_constructs_that_metal_allows_are_accepted"
LANGUAGE = "tests/metal/test_lint.py::test_a_construct_of_cpp_17_is_found"
KERNEL_BY_CLANG = "tests/metal/test_harness.py::test_operations_of_a_simd_group[0-clang]"
KERNEL_BY_GXX = "tests/metal/test_harness.py::test_operations_of_a_simd_group[0-gcc]"
KERNEL = "tests/metal/test_harness.py::test_a_threadgroup_is_made_of_whole_simd_groups"
FAST_KERNEL = "tests/metal/test_function_constants.py::test_a_missing_value_is_an_error"
MEMORY = "tests/metal/test_roofline.py::test_the_threadgroup_memory_equals_the_compilers"
FAST_BY_HOST = (
    "tests/metal/host/test_attention.py::test_the_decode_kernel_takes_up_to_8_rows_and_prefill_more"
)
READABLE_BY_HOST = (
    "tests/metal/host/test_attention.py::test_the_flat_form_takes_the_readable_kernel[64-False]"
)
HOST = "tests/metal/host/test_attention.py::test_nothing_to_compute_dispatches_nothing"
BY_CLANG = {KERNEL_BY_CLANG, FAST_KERNEL, FAST_BY_HOST}
KERNELS = {*BY_CLANG, KERNEL_BY_GXX, KERNEL, READABLE_BY_HOST}
TESTS = {*KERNELS, ADDRESS_SPACES, LANGUAGE, MEMORY, HOST}
NEEDED = (CLANG, CLANG_RUNTIME, GXX, GXX_WITH_HALF, NM)


class Machine(NamedTuple):
    """What it has in the place of programs of this one: a script, or nothing; and what it skips, and why."""

    programs: dict[str, str | None]
    skipped: set[str]
    reasons: set[str]


MACHINES = {
    "all tools": Machine({}, set(), set()),
    "no clang": Machine({"clang++-19": None}, {*BY_CLANG, ADDRESS_SPACES, MEMORY}, {CLANG.lack}),
    "clang without its runtime library": Machine(
        {"clang++-19": 'exec {program} -resource-dir {folder} "$@"'}, BY_CLANG, {CLANG_RUNTIME.lack}
    ),
    "no g++": Machine({"g++": None}, {KERNEL_BY_GXX, LANGUAGE}, {GXX.lack}),
    "g++ 11": Machine(
        {"g++": 'exec {program} -D_Float16=no_such_type "$@"'}, {KERNEL_BY_GXX}, {GXX_WITH_HALF.lack}
    ),
    "g++ 11 and no clang": Machine(
        {"clang++-19": None, "g++": 'exec {program} -D_Float16=no_such_type "$@"'},
        {*KERNELS, ADDRESS_SPACES, MEMORY},
        {CLANG.lack, GXX_WITH_HALF.lack, f"{CLANG.lack} or {GXX_WITH_HALF.lack}"},
    ),
    "no nm": Machine({"nm": None}, {*KERNELS, MEMORY}, {NM.lack}),
}


COMMON = {"all tools", "no clang"}


def path_of(machine: Machine, folder: Path) -> str:
    """A PATH with links to the programs of this process, without those that the machine lacks."""
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    found = {path.name: path for place in reversed(places) for path in place.glob("*")}
    (folder / "bin").mkdir()
    (folder / "include").symlink_to(call(CLANG.name, "-print-resource-dir").strip() + "/include")
    for name, path in found.items():
        link = folder / "bin" / name
        if name not in machine.programs:
            link.symlink_to(path)
        elif script := machine.programs[name]:
            link.write_text(f"#!/bin/sh\n{script.format(program=path, folder=folder)}\n")
            link.chmod(0o755)
    return str(folder / "bin")


@pytest.mark.parametrize(
    "name",
    [name if name in COMMON else pytest.param(name, marks=pytest.mark.slow) for name in MACHINES],
)
def test_the_tests_of_missing_tools_are_skipped_and_no_others(name, tmp_path, monkeypatch):
    need(*NEEDED)
    machine = MACHINES[name]
    monkeypatch.setenv("PATH", path_of(machine, tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    ended = run_python("-m", "pytest", "-v", "-p", "no:cacheprovider", *sorted(TESTS))
    outcomes = dict(re.findall(r"^(tests/\S+) (PASSED|SKIPPED|FAILED|ERROR)", ended.stdout, re.M))
    assert outcomes == {test: "SKIPPED" if test in machine.skipped else "PASSED" for test in TESTS}
    assert set(re.findall(r"^\d+ skipped: (.*)", ended.stdout, re.M)) == machine.reasons


def test_in_the_bare_environment_of_ci_no_tool_is_found_but_a_compiler(tmp_path, monkeypatch):
    need(DPKG, GXX)
    venv = tmp_path / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", venv)
    masquerade = tmp_path / "masquerade"  # a compiler cache precedes the compilers on some machines
    masquerade.mkdir()
    (masquerade / "ccache").write_text("#!/bin/sh\n")
    (masquerade / "ccache").chmod(0o755)
    (masquerade / "g++").symlink_to("ccache")
    monkeypatch.setenv("PATH", str(masquerade), prepend=os.pathsep)
    line = "compgen -c; echo ---; env; echo ---; ls -A ~"
    found = call(ROOT / ".ci/bare", tmp_path / "bare", venv, line)
    programs, environment, home = (part.split("\n") for part in found.split("---\n"))
    assert {"g++", "python", "sh", "cat"} <= set(programs)
    assert (tmp_path / "bare/bin/g++").resolve().name != "ccache"
    others = "clang clang++ clang++-19 ccache qemu-aarch64 aarch64-linux-gnu-g++ nvcc git curl".split()
    assert set(others) & set(programs) == set()
    assert f"PATH={venv}/bin:{tmp_path}/bare/bin" in environment
    assert [line for line in environment if re.match("CMAKE|CCACHE|CXX|CC|PYTHON|XDG|HF_", line)] == []
    assert home == [""]


ABSENT = Tool("no-such-compiler", "nobody has it", builds_programs("no-such-compiler"))


def test_without_a_tool_a_test_is_skipped_with_its_name_and_how_to_get_it(monkeypatch):
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-compiler does not work here: nobody has it"):
        need(ABSENT)


def test_without_a_required_tool_a_test_fails(monkeypatch):
    monkeypatch.setenv(REQUIRED, f"{GXX.name},{ABSENT.name}")
    with pytest.raises(pytest.fail.Exception, match="nobody has it"):
        need(ABSENT)


def test_ci_requires_every_tool_of_the_tests():
    """Except CUDA's compiler, which is too large to install, and dpkg, which Debian has."""
    known = {
        tool for module in (tools, toolchain) for tool in vars(module).values() if isinstance(tool, Tool)
    }
    required = re.search(rf'{REQUIRED}="(.*)"', (ROOT / ".ci/run").read_text())[1].split(",")
    assert set(required) == {tool.name for tool in known - {NVCC, DPKG}}


@pytest.mark.parametrize("name", COMPILERS)
def test_a_mistake_in_our_shim_is_not_taken_for_a_missing_compiler(name, tmp_path, monkeypatch):
    need(*TOOLS[name])
    (tmp_path / "metal_stdlib").write_text("#error")
    monkeypatch.setattr(toolchain, "SHIM", tmp_path)
    runs_kernels(COMPILERS[name])(tmp_path)


def test_a_compiler_that_links_nothing_does_not_work(tmp_path, monkeypatch):
    """It is on the PATH, and --version works."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "half-a-compiler").write_text('#!/bin/sh\nfor a; do [ "$a" != -o ] || exit 1; done\n')
    (tmp_path / "half-a-compiler").chmod(0o755)
    half = Tool("half-a-compiler", "", builds_programs("half-a-compiler"))
    assert lacking(half) is half


def test_nothing_else_decides_what_is_skipped_for_a_tool():
    """No test looks for programs itself, or has fewer parameters if one is missing."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    looks = re.compile(r"shutil\.which|importorskip")
    assert [path.name for path in files if looks.search(path.read_text())] == []
