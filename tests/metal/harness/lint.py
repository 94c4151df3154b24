"""Rules of Metal that the harness does not need to run a kernel, but Apple's compiler insists on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ...support.processes.tools import CLANG, GXX, need
from .toolchain import COMPILERS, OPENCL_CPP, SHIM, SOURCES

# What C++ for OpenCL offers beyond Metal: generic pointers, double, global variables.
NOT_IN_METAL = (
    "__opencl_c_pipes",
    "__opencl_c_device_enqueue",
    "__opencl_c_generic_address_space",
    "cl_khr_fp64",
    "__opencl_c_fp64",
    "__opencl_c_program_scope_global_variables",
)


def complaints(*command: str, path: Path) -> str:
    """What a compiler says about a Metal file, which may be a header."""
    files = (f"-I{SHIM}", f"-I{SOURCES}", "-include", "metal_stdlib", "-include", str(path), "/dev/null")
    command = (*command, "-Wall", "-fsyntax-only", *files)
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def address_spaces(path: Path) -> str:
    """What is wrong with the address spaces and types of a Metal file; empty if nothing is."""
    need(CLANG)
    extensions = "-cl-ext=" + ",".join(f"-{name}" for name in NOT_IN_METAL)
    return complaints(COMPILERS["clang"].program, *OPENCL_CPP, "-Xclang", extensions, path=path)


def language_version(path: Path) -> str:
    """What a Metal file takes from C++ beyond its version 14; empty if nothing."""
    need(GXX)
    flags = ("-std=c++14", "-pedantic-errors", "-Wno-attributes", "-Wno-unknown-pragmas")
    flags += ("-DHARNESS_SYNTAX_ONLY",)
    return complaints(COMPILERS["gcc"].program, "-x", "c++", *flags, path=path)
