"""Which build of MLX is installed on Linux: mlx-cpu or one for CUDA. Only one: they have the same files.

`pdm run setup --cuda` replaces the first by the second, `pdm run setup --cpu` goes back.
"""

import ctypes
import importlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from build import BuildError

CPU = "mlx-cpu"
CUDA = {12: "mlx-cuda-12", 13: "mlx-cuda-13"}  # by the version of CUDA
MACHINES = ("x86_64", "aarch64")
DRIVER = "libcuda.so.1"
FORCE = "add --force where a GPU comes later, as in an image of a container"


@dataclass(frozen=True, slots=True)
class Driver:
    """NVIDIA's driver: the newest CUDA that it supports, 13000 for 13.0, and the number of GPUs."""

    cuda: int
    gpus: int


def find_driver() -> Driver | None:
    """Ask the driver's own library; None where it cannot be loaded."""
    try:
        library = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    cuda, gpus = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(cuda))
    if library.cuInit(0) == 0:
        library.cuDeviceGetCount(ctypes.byref(gpus))
    return Driver(cuda.value, gpus.value)


def cuda_package(system: str, machine: str, driver: Driver | None, *, force: bool = False) -> str:
    """The build of MLX for this driver; with `force`, also where no GPU is found."""
    if system != "Linux" or machine not in MACHINES:
        raise BuildError(
            f"--cuda: got {system} on {machine}, expected Linux on {' or '.join(MACHINES)}: MLX has no other "
            "builds for CUDA."
        )
    if driver is None:
        if force:
            return CUDA[max(CUDA)]
        raise BuildError(
            f"--cuda: no NVIDIA driver found: {DRIVER} cannot be loaded. Without it MLX's build for CUDA "
            f"cannot be imported: install the driver, or {FORCE}."
        )
    supported = [version for version in CUDA if version <= driver.cuda // 1000]
    if not supported:
        newest = f"{driver.cuda // 1000}.{driver.cuda % 1000 // 10}"
        raise BuildError(
            f"--cuda: the NVIDIA driver supports CUDA up to {newest}, and MLX needs {min(CUDA)} or newer: "
            "update the driver."
        )
    if not driver.gpus and not force:
        raise BuildError(f"--cuda: the NVIDIA driver finds no GPU: `nvidia-smi` may say why, or {FORCE}.")
    return CUDA[max(supported)]


def required_version(pyproject: str) -> str:
    """The version of mlx-cpu in the text of pyproject.toml; the builds for CUDA have the same numbers."""
    for dependency in tomllib.loads(pyproject)["project"]["dependencies"]:
        if pinned := re.match(r"mlx\[cpu\]==([\w.]+)", dependency):
            return pinned[1]
    raise BuildError("pyproject.toml: expected a dependency mlx[cpu]==VERSION.")


def installed() -> dict[str, str]:
    """The builds of MLX that are installed beside this Python, and their versions."""
    importlib.invalidate_caches()
    found = {}
    for name in (CPU, *CUDA.values()):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def replace_by(package: str, version: str) -> dict[str, str]:
    """Make `package` the only build of MLX; return what it replaced.

    A failed download changes nothing: everything is there before the first file changes.
    """
    others = {name: number for name, number in installed().items() if name != package}
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--quiet", "--no-deps", "--dest", folder, f"{package}=={version}")
        (wheel,) = Path(folder).iterdir()
        pip("install", wheel)  # with NVIDIA's libraries
        if others:  # removing them removes the files that `package` has just installed
            pip("uninstall", "--quiet", "--yes", *others)
            pip("install", "--quiet", "--force-reinstall", "--no-deps", "--no-index", wheel)
    return others


def pip(*words: str | os.PathLike[str]) -> None:
    """Run pip; its output goes to standard error."""
    command = [sys.executable, "-m", "pip", *words, "--disable-pip-version-check"]
    if subprocess.run(command, stdout=2, check=False).returncode:
        raise BuildError(f"`pip {words[0]}` failed, see its message above. Is this machine online?")
