"""Rules of Metal that Apple's compiler enforces and the harness can run a kernel without."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ...support.processes.tools import CLANG, GXX, need
from .toolchain import COMPILERS, OPENCL_CPP, SHIM, SOURCES

# Features of C++ for OpenCL that Metal lacks: generic pointers, double, global variables.
NOT_IN_METAL = (
    "__opencl_c_pipes",
    "__opencl_c_device_enqueue",
    "__opencl_c_generic_address_space",
    "cl_khr_fp64",
    "__opencl_c_fp64",
    "__opencl_c_program_scope_global_variables",
)


def complaints(*command: str, path: Path) -> str:
    """A compiler's messages about a Metal file, which may be a header."""
    files = (f"-I{SHIM}", f"-I{SOURCES}", "-include", "metal_stdlib", "-include", str(path), "/dev/null")
    command = (*command, "-Wall", "-fsyntax-only", *files)
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def address_spaces(path: Path) -> str:
    """Errors in the address spaces and types of a Metal file, or an empty string."""
    need(CLANG)
    extensions = "-cl-ext=" + ",".join(f"-{name}" for name in NOT_IN_METAL)
    return complaints(COMPILERS["clang"].program, *OPENCL_CPP, "-Xclang", extensions, path=path)


def language_version(path: Path) -> str:
    """Uses of C++ beyond C++14 in a Metal file, or an empty string."""
    need(GXX)
    flags = ("-std=c++14", "-pedantic-errors", "-Wno-attributes", "-Wno-unknown-pragmas")
    flags += ("-DHARNESS_SYNTAX_ONLY",)
    return complaints(COMPILERS["gcc"].program, "-x", "c++", *flags, path=path)
