"""Build the native module in place: `pdm run build-ext`. With --clean, remove everything that was built."""

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "extensions" / "tiny_llm_ext"
BUILD = ROOT / "build" / f"in-place-{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
# A program that prints the instruction sets of its machine. CMake compiles it and writes the list of built
# kernels beside it: those of all machines that have built here so far.
MACHINE_ISAS = BUILD / "machine_isas"
MODULE = PACKAGE / f"_ext{sysconfig.get_config_var('EXT_SUFFIX')}"


class BuildError(Exception):
    """The text says what is missing and how to install it."""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """A lock of this folder: only one process at a time installs or builds here."""
    lock = ROOT / "build" / "setup.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another set-up of this folder ...", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_toolchain() -> None:
    """Raise BuildError unless a C++20 compiler and the headers of this Python are installed."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    compiler = next((name for name in names if shutil.which(shlex.split(name)[0])), None)
    if compiler is None:
        raise BuildError(
            f"No C++ compiler found (looked for {', '.join(names)}): install g++ 11 or clang 14, or newer "
            "(Debian and Ubuntu: apt install g++, macOS: xcode-select --install)."
        )
    probe = [*shlex.split(compiler), "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    if subprocess.run(probe, input=b"#include <concepts>", capture_output=True, check=False).returncode:
        raise BuildError(f"The compiler {compiler} has no C++20: install g++ 11 or clang 14, or newer.")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise BuildError(
            f"Python.h of Python {version} not found: install its headers "
            f"(Debian and Ubuntu: apt install python{version}-dev, Fedora: dnf install python3-devel)."
        )


def tool(name: str) -> str:
    """The path of cmake or ninja, the one installed with this Python or else that of the system."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        raise BuildError(f"{name} not found: `pdm install` and `pip install {name}` bring it.")
    return found


def is_for_this_machine() -> bool:
    """Whether the build has all instruction sets of this machine."""
    if not MACHINE_ISAS.is_file():
        return True
    try:
        printed = subprocess.run([MACHINE_ISAS], text=True, capture_output=True, check=True).stdout
        built = MACHINE_ISAS.with_suffix(".txt").read_text()
    except (OSError, subprocess.CalledProcessError):  # it does not run here, or CMake was interrupted
        return False
    return set(printed.split()) <= set(built.split())


def configure() -> None:
    """Write the Ninja files; a build folder that was copied or moved here is removed first."""
    cache = BUILD / "CMakeCache.txt"
    if cache.is_file() and f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}\n" not in cache.read_text():
        shutil.rmtree(BUILD)
    if not is_for_this_machine():
        MACHINE_ISAS.unlink()  # CMake compiles it again, for this machine
    command: list[str | Path] = [tool("cmake"), "-S", ROOT, "-B", BUILD, "-G", "Ninja"]
    command += [
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DTINY_LLM_IN_PLACE=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    if wanted := os.environ.get("TINY_LLM_BUILD_ISAS"):  # else unchanged; at first those of this machine
        command.append(f"-DTINY_LLM_BUILD_ISAS={wanted}")
    result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        raise BuildError(f"{result.stdout}\nCMake could not configure the build; see the message above.")


def show_progress(done: int, total: int) -> None:
    """On standard error: a bar in a terminal, removed at the end; elsewhere a line for each tenth."""
    if sys.stderr.isatty():
        bar = "█" * (30 * done // total)
        line = "" if done == total else f"  {bar:░<30} {done}/{total}"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    elif done < total and 10 * done // total > 10 * (done - 1) // total:
        print(f"  {done} of {total}", file=sys.stderr, flush=True)


def compile_sources() -> None:
    """Run Ninja, show its progress, and print the messages of the compiler."""
    process = subprocess.Popen(
        [tool("ninja"), "-C", BUILD],
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    messages = []
    for line in process.stdout:
        if status := re.match(r"\[(\d+)/(\d+)\]", line):
            show_progress(int(status[1]), int(status[2]))
        elif not line.startswith(("ninja: Entering directory", "ninja: no work to do")):
            messages.append(line)
    if process.wait():
        raise BuildError(f"\n{''.join(messages)}\nThe extension does not compile; see the message above.")
    sys.stderr.writelines(messages)


def build() -> None:
    """Check the tools, configure and compile the module into its Python package.

    The caller holds the lock of `one_at_a_time`.
    """
    start = time.monotonic()
    print("Building the native extension ...", file=sys.stderr, flush=True)
    check_toolchain()
    configure()
    compile_sources()
    print(f"Built {MODULE.relative_to(ROOT)} in {time.monotonic() - start:.1f} s.", file=sys.stderr)


def clean() -> None:
    """Remove the build folder and the built libraries beside the Python sources."""
    for folder in (ROOT / "build", PACKAGE / "metal"):
        shutil.rmtree(folder, ignore_errors=True)
    for pattern in ("*.so", "*.dylib", "*.metallib"):
        for library in PACKAGE.glob(pattern):
            library.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--clean", action="store_true", help="remove the build folder and the built libraries"
    )
    only_clean = parser.parse_args().clean
    try:
        if only_clean:
            clean()
        else:
            with one_at_a_time():
                build()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
