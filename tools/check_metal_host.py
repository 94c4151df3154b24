"""Compile the extension against MLX's package for macOS: `tools/check_metal_host.py [--optional]`.

No Mac is needed: pip has the headers of MLX and of Metal, `tests/metal/host/apple_system.h` replaces those of
the system, and clang compiles on Linux. The check covers the host side of Metal and everything that is built
with it, except the CPU kernels and the Python bindings:

1. it compiles without warnings, file by file, and in the unity builds of a Mac;
2. MLX's library for macOS exports every function of MLX or Metal that it uses.

With --optional, a machine without clang or without network prints that and passes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src/extensions/src"
CMAKE = ROOT / "src/extensions/CMakeLists.txt"
OTHER_BUILDS = {"tests", "no_gpu"}
CACHE = ROOT / "build"
SYSTEM = ROOT / "tests/metal/host/apple_system.h"
# Headers that metal-cpp and MLX include; apple_system.h has the declarations that they need.
SYSTEM_HEADERS = """objc/runtime.h objc/message.h CoreFoundation/CoreFoundation.h dispatch/dispatch.h
IOSurface/IOSurfaceRef.h mach/mach.h TargetConditionals.h""".split()
PLATFORM = "macosx_14_0_arm64"
WARNINGS = "-Wall -Wextra -Werror -Wno-deprecated-declarations".split()  # MLX's headers use std::bind
COMPILER, SYMBOLS = "clang++-19", "llvm-nm-19"
FOREIGN = re.compile(r"(?:vtable for |typeinfo for )?((?:mlx::core|MTL|NS)::[\w:~]+)")


class Unavailable(Exception):
    """Something that this machine lacks, as a sentence."""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def package() -> Path:
    """MLX's package for macOS in the installed version, downloaded once and unpacked."""
    version = metadata.version("mlx")
    folder = CACHE / f"mlx-metal-{version}"
    if folder.is_dir():
        return folder / "mlx"
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
        command = [sys.executable, *"-m pip download -q --no-deps --only-binary=:all:".split()]
        command += ["--platform", PLATFORM, "-d", unfinished, f"mlx-metal=={version}"]
        answer = run(*command)
        if answer.returncode:
            raise Unavailable(f"pip cannot get mlx-metal {version}: {answer.stderr.strip()}")
        (wheel,) = Path(unfinished).glob("*.whl")
        unpacked = Path(unfinished) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        for header in SYSTEM_HEADERS:
            place = unpacked / "mlx/system" / header
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        try:
            os.replace(unpacked, folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder / "mlx"


def exported_names(mlx: Path) -> set[str]:
    """The names that the library for macOS exports, without arguments."""
    answer = run(SYMBOLS, *"--defined-only --extern-only --demangle".split(), mlx / "lib/libmlx.dylib")
    return set(FOREIGN.findall(answer.stdout))


def complaints(source: Path, mlx: Path, exported: set[str]) -> list[str]:
    """Errors of a source file; empty if it would compile and link on a Mac."""
    folders = [mlx / "system", mlx / "include/metal_cpp", mlx / "include"]
    options = ["-std=c++20", "-fblocks", "-D_METAL_", f"-I{SOURCES}", *WARNINGS]
    options += [word for folder in folders for word in ("-isystem", str(folder))]
    with tempfile.TemporaryDirectory() as scratch:
        compiled = Path(scratch) / "compiled.o"
        answer = run(COMPILER, *options, "-include", SYSTEM, "-c", source, "-o", compiled)
        if answer.returncode:
            return [answer.stderr]
        wanted = run(SYMBOLS, "--undefined-only", "--demangle", compiled).stdout
    missing = sorted(set(FOREIGN.findall(wanted)) - exported)
    return [f"{source.name}: {name} is not exported by MLX's library for macOS" for name in missing]


def units_in_place(folder: Path) -> list[Path]:
    """The unity-build files that CMake would make on a Mac from the sources for Metal."""
    text = CMAKE.read_text()

    def found(pattern: str) -> str:
        match = re.search(pattern, text)
        assert match, f"{CMAKE}: {pattern} is missing"
        return match[1]

    batch = int(found(r"compile_together\(_ext (\d+)\)"))
    bindings = found(r"set\(BINDINGS ([^)]*)\)").split()
    sources = found(r"set\(METAL_SOURCES\s+([^)]*)\)").split()
    sources += found(r"set\(gpu_sources \$\{METAL_SOURCES\} ([^)]*)\)").split()
    everything = [*bindings, *sources]
    units = []
    for first in range(0, len(everything), batch):
        together = [CMAKE.parent / name for name in everything[first : first + batch] if name in sources]
        if together:
            units.append(folder / f"in_place_{first}.cpp")
            units[-1].write_text("".join(f'#include "{path}"\n' for path in together))
    return units


def require_programs() -> None:
    for program in (COMPILER, SYMBOLS):
        if not shutil.which(program):
            raise Unavailable(f"{program} is missing")


def check() -> list[str]:
    """The complaints about all files."""
    require_programs()
    mlx = package()
    exported = exported_names(mlx)
    files = sorted(SOURCES.rglob("*.cpp"))
    files = [path for path in files if path.relative_to(SOURCES).parts[0] not in OTHER_BUILDS]
    files = [path for path in files if not path.name.startswith("isa_")]
    with ThreadPoolExecutor(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as scratch:
        files += units_in_place(Path(scratch))
        found = pool.map(lambda source: complaints(source, mlx, exported), files)
        return [complaint for each in found for complaint in each]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optional", action="store_true", help="pass if this machine cannot run the check")
    optional = parser.parse_args().optional
    try:
        found = check()
    except Unavailable as reason:
        print(f"The extension was not compiled for macOS: {reason}", file=sys.stderr)
        return 0 if optional else 1
    print("\n".join(found) or "The extension compiles, and MLX's library for macOS exports all that it uses.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
