"""Compiles Metal kernels for Linux. Everything that was built once stays in `build/metal`."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from metal_source import SOURCES

from ...support.processes.tools import CLANG, GXX, NM, Tool, call, cpp_compiler, lacking, leave_out
from .places import located
from .signature import Signature, launcher

HARNESS = Path(__file__).resolve().parent
ROOT = HARNESS.parents[2]
SHIM = HARNESS / "shim"
CACHE = ROOT / "build/metal"
THREADGROUP_MEMORY = 32768  # bytes, on every Apple GPU

OPENCL_CPP = (
    *"-x clcpp -cl-std=clc++2021 -cl-no-stdinc -cl-single-precision-constant".split(),
    *"-target x86_64-linux-gnu -Wno-unknown-attributes".split(),
)


@dataclass(frozen=True)
class Compiler:
    """A compiler, and its flags to build a library from a kernel."""

    name: str
    program: str
    language: tuple[str, ...]
    instrumented: tuple[str, ...]  # optimised, with a call of a hook at every access
    probe: str  # a kernel in plain language, without a header: adds 1 in half precision
    link: tuple[str, ...] = ()


CLANG_FLAGS = (
    *"-O1 -fsanitize=thread,array-bounds -mllvm -tsan-instrument-read-before-write=1".split(),
    *"-mllvm -tsan-instrument-func-entry-exit=0".split(),
)
OPENCL_PROBE = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void probe(global half* x) { x[0] = half(float(x[0]) + 1.0f); }
"""
GXX_PROBE = 'extern "C" void probe(_Float16* x) { x[0] = _Float16(float(x[0]) + 1.0f); }'
COMPILERS = {
    "clang": Compiler("clang", "clang++-19", OPENCL_CPP, CLANG_FLAGS, OPENCL_PROBE, ("-rtlib=compiler-rt",)),
    "gcc": Compiler(
        "gcc",
        "g++",
        ("-x", "c++", "-std=c++17", "-Wno-attributes"),
        ("-O1", "-fsanitize=thread,bounds"),
        GXX_PROBE,
    ),
}
PROBE_CHECKS = """extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read2(void*) {}
void __tsan_write2(void*) {}
}"""


def runs_kernels(compiler: Compiler) -> Callable[[Path], object]:
    """A probe that adds 1 to 1 in half precision, which needs the compiler's runtime library.

    It includes none of our files: a mistake in the shim must not look like a missing compiler.
    """

    def probe(folder: Path) -> None:
        kernel, checks, built = folder / "probe.metal", folder / "checks.cpp", folder / "probe.so"
        kernel.write_text(compiler.probe)
        checks.write_text(PROBE_CHECKS)
        translate = (compiler.program, *compiler.language, "-fPIC", *compiler.instrumented)
        objects = folder / "probe.o", folder / "checks.o"
        call(*translate, "-c", kernel, "-o", objects[0])
        call(compiler.program, "-fPIC", "-c", checks, "-o", objects[1])
        call(compiler.program, "-shared", *compiler.link, *objects, "-o", built)
        number = ctypes.c_uint16(0x3C00)
        ctypes.CDLL(str(built)).probe(ctypes.byref(number))
        if number.value != 0x4000:
            raise OSError(f"1 + 1 is {number.value:#x} in half precision")

    return probe


CLANG_RUNTIME = Tool("libclang-rt-19-dev", "apt install libclang-rt-19-dev", runs_kernels(COMPILERS["clang"]))
GXX_WITH_HALF = Tool("g++ 12", "apt install g++-12, and let `g++` be it", runs_kernels(COMPILERS["gcc"]))
# The tools that each compiler needs to run a kernel.
TOOLS = {"clang": (CLANG, CLANG_RUNTIME, NM), "gcc": (GXX, GXX_WITH_HALF, NM)}


class BuildError(Exception):
    """The compiler's messages, or the rule that the kernel breaks."""


@dataclass(frozen=True)
class Library:
    """A built kernel; arrays are its threadgroup memory: name, offset in the library, bytes."""

    path: Path
    arrays: tuple[tuple[str, int, int], ...]
    anchor: int  # offset of harness_dispatch
    threadgroup_bytes: int


def compiler_for(signature: Signature, wanted: str | None = None) -> Compiler:
    """The compiler `wanted`, or the best one that can run this kernel; without one, the test is skipped.

    Only clang supports function constants and the pointers to threadgroup memory of the same kernels.
    """
    need_this_platform()
    return working_compiler([wanted] if wanted else ["clang"] if signature.constants else list(TOOLS))


def working_compiler(names: Iterable[str] = TOOLS) -> Compiler:
    """The first of these compilers that runs kernels; without one, the test is skipped."""
    lacks = {name: lacking(*TOOLS[name]) for name in names}
    if all(lacks.values()):
        leave_out(*lacks.values())
    return COMPILERS[next(name for name, lack in lacks.items() if not lack)]


def need_this_platform() -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("MLX has no GPU on this machine, and Metal kernels are run on x86-64 Linux")


def run(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(result.stderr)
    return result.stdout


@cache
def digest(folder: Path) -> str:
    """A hash of all files in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def cached(make: Callable[[Path], object], *parts: str) -> Path:
    """A folder that `make` fills once; the key is `parts` and the files of this harness."""
    folder = CACHE / hashlib.sha256("\0".join([*parts, digest(HARNESS)]).encode()).hexdigest()[:20]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=CACHE))
        try:
            make(unfinished)
            os.replace(unfinished, folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def compile_host(compiler: Compiler, source: Path, output: Path) -> None:
    includes = (f"-I{SHIM}", f"-I{SOURCES}")
    run(compiler.program, "-std=c++20", "-O2", "-fPIC", "-w", *includes, "-c", source, "-o", output)


def host_library(source: Path) -> Path:
    """A shared library from one C++ file of the host."""
    text = source.read_text()
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{SOURCES}")

    def make(folder: Path) -> None:
        run(cpp_compiler(), *flags, source, "-o", folder / "host.so")

    return cached(make, "host", text, digest(SOURCES)) / "host.so"


def runtime(compiler: Compiler) -> list[Path]:
    """The object files of the runtime, which are the same for every kernel."""
    sources = sorted((HARNESS / "runtime").glob("*.cpp"))

    def make(folder: Path) -> None:
        for source in sources:
            compile_host(compiler, source, folder / f"{source.stem}.o")

    folder = cached(make, compiler.name, "runtime")
    return [folder / f"{source.stem}.o" for source in sources]


def launcher_object(compiler: Compiler, text: str) -> Path:
    def make(folder: Path) -> None:
        (folder / "launcher.cpp").write_text(text)
        compile_host(compiler, folder / "launcher.cpp", folder / "launcher.o")

    return cached(make, compiler.name, text, digest(SOURCES)) / "launcher.o"


@cache
def symbols(binary: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each symbol; size 0 if it has none."""
    table = {}
    for line in run("nm", "-S", binary).splitlines():
        if match := re.fullmatch(r"([0-9a-f]+)(?: ([0-9a-f]+))? \w (\S+)", line):
            table[match[3]] = int(match[1], 16), int(match[2] or "0", 16)
    return table


def threadgroup_arrays(binary: Path, kernel: str) -> dict[str, tuple[int, int]]:
    """Offset and size of the kernel's static arrays, by their names in the source."""
    own = re.compile(rf"_ZZ\d+{kernel}E\d+(\w+)")
    return {match[1]: place for name, place in symbols(binary).items() if (match := own.fullmatch(name))}


def constant_symbols(binary: Path, signature: Signature) -> dict[str, str]:
    """The symbol of each function constant, which may be in a namespace."""
    table = symbols(binary)
    return {
        name: next(symbol for symbol in table if re.fullmatch(rf"(_ZN\w+?{len(name)})?{name}E?", symbol))
        for name, _ in signature.constants
    }


failures: dict[tuple[str, str], BuildError] = {}  # a wrong kernel is compiled once, not for each test


def objects_of(compiler: Compiler, source: str) -> Path:
    """A folder with all kernels of a source: kernel.o, and unoptimised.o, which still has every array."""
    translate = (compiler.program, *compiler.language, f"-I{SHIM}", "-fPIC", "-c")
    key = compiler.name, source
    if key in failures:
        raise failures[key]

    def make(folder: Path) -> None:
        text = folder / "kernel.metal"
        text.write_text(source)
        try:
            run(*translate, *compiler.instrumented, text, "-o", folder / "kernel.o")
        except BuildError as error:
            failures[key] = BuildError(located(str(error), text, source))
            raise failures[key] from None
        run(*translate, "-O0", text, "-o", folder / "unoptimised.o")

    return cached(make, compiler.name, source)


def build(source: str, signature: Signature, compiler: Compiler, slot_header: str | None) -> Library:
    """Compile a kernel with instrumented accesses, and link it with the runtime."""
    objects = objects_of(compiler, source)

    def make(folder: Path) -> None:
        constants = constant_symbols(objects / "unoptimised.o", signature)
        text = launcher(signature, slot_header, constants)
        parts = [objects / "kernel.o", launcher_object(compiler, text), *runtime(compiler)]
        run(compiler.program, "-shared", *compiler.link, *parts, "-o", folder / "kernel.so", "-lm")

    folder = cached(make, compiler.name, signature.name, str(slot_header), source, digest(SOURCES))
    arrays = threadgroup_arrays(objects / "unoptimised.o", signature.name)
    total = sum(size for _, size in arrays.values())
    if total > THREADGROUP_MEMORY:
        raise BuildError(f"{signature.name}: {total} bytes of threadgroup memory, of {THREADGROUP_MEMORY}")
    linked = threadgroup_arrays(folder / "kernel.so", signature.name)
    return Library(
        folder / "kernel.so",
        tuple((name, *place) for name, place in linked.items()),
        symbols(folder / "kernel.so")["harness_dispatch"][0],
        total,
    )
