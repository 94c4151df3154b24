"""The build in place compiles the instruction sets of this machine, and nothing that only tests need."""

import platform
import re
import shutil
import subprocess

import pytest

import build

from ..support.native import available_isas
from ..support.processes.child import ROOT

is_x86 = platform.machine() == "x86_64"


def fewest_isas(best: str) -> set[str]:
    """The smallest build that has `best`."""
    return {"scalar", best} | ({"avx512"} if best in ("avx512bf16", "amx") else set())


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """The commands of a new build in place, with TINY_LLM_BUILD_ISAS in the environment."""

    def commands(isas: str | None = None) -> str:
        monkeypatch.setattr(build, "BUILD", tmp_path)
        monkeypatch.setattr(build, "MACHINE_ISAS", tmp_path / "machine_isas")
        monkeypatch.delenv("TINY_LLM_BUILD_ISAS", raising=False)
        if isas:
            monkeypatch.setenv("TINY_LLM_BUILD_ISAS", isas)
        build.configure()
        ninja = [build.tool("ninja"), "-C", tmp_path, "-t", "commands", "all"]
        return subprocess.run(ninja, text=True, capture_output=True, check=True).stdout

    return commands


def compiled_isas(commands: str) -> list[str]:
    return sorted(re.findall(r"-c \S*/isa_([a-z0-9]+)\.cpp$", commands, flags=re.MULTILINE))


def test_it_compiles_nothing_that_only_tests_need(commands):
    text = commands()
    assert "_ext.dir" in text
    assert "tests/" not in text


def test_it_compiles_the_instruction_sets_of_this_machine(commands):
    assert compiled_isas(commands()) == sorted(available_isas())


def test_all_compiles_every_instruction_set(commands):
    text = commands("all")
    assert set(available_isas()) <= set(compiled_isas(text))
    assert "absent_isa" not in text


def test_the_choice_is_remembered(commands):
    assert compiled_isas(commands("all")) == compiled_isas(commands())


def test_a_package_from_the_same_folder_has_all_instruction_sets(commands, tmp_path):
    every_isa = compiled_isas(commands("all"))
    shutil.rmtree(tmp_path)
    commands()
    subprocess.run(
        [build.tool("cmake"), "-DTINY_LLM_IN_PLACE=OFF", tmp_path], check=True, stdout=subprocess.DEVNULL
    )
    ninja = [build.tool("ninja"), "-C", tmp_path, "-t", "commands", "all"]
    assert (
        compiled_isas(subprocess.run(ninja, text=True, capture_output=True, check=True).stdout) == every_isa
    )


def test_a_shared_folder_keeps_the_instruction_sets_of_other_machines(commands, tmp_path):
    """The other machine is a program that prints one instruction set of this one."""
    commands()
    other = tmp_path / "machine_isas"
    other.write_text("#!/bin/sh\necho scalar\n")
    assert compiled_isas(commands()) == sorted(available_isas())


def test_named_instruction_sets_are_compiled_and_no_others(commands):
    assert compiled_isas(commands("scalar")) == ["scalar"]
    fewest = fewest_isas(available_isas()[0])
    assert compiled_isas(commands(",".join(fewest))) == sorted(fewest)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("scalar,avx3", "all, native, or names"),
        *((isa, "scalar among them") for isa in available_isas()[:1] if isa != "scalar"),
        *((f"scalar,{isa}", "avx512 among them") for isa in ("avx512bf16", "amx") if is_x86),
    ],
)
def test_anything_else_is_refused(commands, given, expected):
    with pytest.raises(build.BuildError, match=f"TINY_LLM_BUILD_ISAS: got '{given}', expected {expected}"):
        commands(given)


@pytest.mark.slow
def test_the_smallest_build_with_the_best_instruction_set_has_all_of_its_kernels(tmp_path):
    """Compiled without optimization, and without the extension."""
    chosen = ",".join(sorted(fewest_isas(available_isas()[0])))
    options = (f"-DTINY_LLM_BUILD_ISAS={chosen}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-G", "Ninja")
    source = ROOT / "src/extensions/src/tests"
    for command in (
        [build.tool("cmake"), "-S", source, "-B", tmp_path, *options],
        [build.tool("ninja"), "-C", tmp_path, "isa_test"],
        [tmp_path / "isa_test"],
    ):
        ran = subprocess.run(command, text=True, capture_output=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
