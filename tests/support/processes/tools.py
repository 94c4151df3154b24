"""Programs that some tests call and not every machine has.

A test calls `need(tool)` before it uses one. If the tool does not work, the test is skipped, and the summary
says how to get it. TINY_LLM_TEST_TOOLS names tools, separated by commas, that must not be missing: a test
that needs one of them fails instead.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

REQUIRED = "TINY_LLM_TEST_TOOLS"


@dataclass(frozen=True)
class Tool:
    """A program or library, how to install it, and a probe that uses it as the tests do."""

    name: str
    how_to_get_it: str
    probe: Callable[[Path], object]  # in an empty folder; raises OSError or CalledProcessError

    @property
    def lack(self) -> str:
        return f"{self.name} does not work here: {self.how_to_get_it}"


@cache
def works(tool: Tool) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            tool.probe(Path(folder))
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


def call(*command: str | Path) -> str:
    """Standard output of a program; CalledProcessError if it fails, OSError if it is missing."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def program(name: str, how_to_get_it: str) -> Tool:
    """A program that works if it answers --version."""
    return Tool(name, how_to_get_it, lambda folder: call(name, "--version"))


def lacking(*tools: Tool) -> Tool | None:
    """The first tool that does not work; None if all work."""
    return next((tool for tool in tools if not works(tool)), None)


def need(*tools: Tool) -> None:
    """Skip the test unless all of these tools work."""
    if tool := lacking(*tools):
        leave_out(tool)


def leave_out(*tools: Tool) -> NoReturn:
    """Skip the test, which needs one of these tools; fail it if one of them is required."""
    reason = " or ".join(dict.fromkeys(tool.lack for tool in tools))
    required = os.environ.get(REQUIRED, "").split(",")
    if any(tool.name in required for tool in tools):
        pytest.fail(f"{REQUIRED} names a tool that is missing: {reason}", pytrace=False)
    pytest.skip(reason)


def builds_programs(compiler: str) -> Callable[[Path], object]:
    """A probe that compiles, links and runs a C++20 program."""

    def probe(folder: Path) -> None:
        source, built = folder / "probe.cpp", folder / "probe"
        source.write_text('#include <concepts>\n#include <cstdio>\nint main() { std::puts("works"); }\n')
        call(compiler, "-std=c++20", source, "-o", built)
        call(built)

    return probe


GXX = Tool("g++", "apt install g++", builds_programs("g++"))
CLANG = Tool("clang++-19", "apt install clang-19", builds_programs("clang++-19"))
NM = program("nm", "apt install binutils")
LLVM_NM = program("llvm-nm-19", "apt install llvm-19")
NVCC = program("nvcc", "CUDA's toolkit brings it")
GIT = program("git", "apt install git")
DPKG = program("dpkg", "Debian and Ubuntu have it")


def cpp_compiler() -> str:
    """A compiler of plain C++ that works here."""
    compiler = GXX if works(GXX) or not works(CLANG) else CLANG
    need(compiler)
    return compiler.name
