"""`pdm run setup --cuda`: which build of MLX is chosen, and what is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

from ..support.processes.child import ROOT


@pytest.fixture
def mlx_package(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "src" / "extensions"))
    monkeypatch.delitem(sys.modules, "build", raising=False)  # there is a package of this name
    specification = importlib.util.spec_from_file_location(
        "mlx_package_under_test", ROOT / "tools/mlx_package.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)  # dataclasses look it up
    specification.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "build")
    return module


@pytest.mark.parametrize(
    ("cuda", "package"),
    [(12000, "mlx-cuda-12"), (12090, "mlx-cuda-12"), (13000, "mlx-cuda-13"), (14010, "mlx-cuda-13")],
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_driver_selects_the_newest_build_that_it_supports(mlx_package, cuda, package, machine):
    assert mlx_package.cuda_package("Linux", machine, mlx_package.Driver(cuda, gpus=1)) == package


@pytest.mark.parametrize("gpus", [0, 2])
def test_the_driver_is_asked_through_its_own_library(mlx_package, monkeypatch, tmp_path, gpus):
    """The library here has three functions of the driver; without GPUs, the first call of a driver fails."""
    (tmp_path / "driver.cpp").write_text(f"""
extern "C" int cuDriverGetVersion(int *version) {{ *version = 13010; return 0; }}
extern "C" int cuInit(unsigned) {{ return {0 if gpus else 100}; }}
extern "C" int cuDeviceGetCount(int *count) {{ *count = {gpus}; return 0; }}
""")
    library = tmp_path / "driver.so"
    monkeypatch.setattr(mlx_package, "DRIVER", str(library))
    assert mlx_package.find_driver() is None
    subprocess.run(["c++", "-shared", "-fPIC", tmp_path / "driver.cpp", "-o", library], check=True)
    assert mlx_package.find_driver() == mlx_package.Driver(cuda=13010, gpus=gpus)


@pytest.mark.parametrize(
    ("system", "machine", "driver", "reason"),
    [
        ("Darwin", "arm64", None, "got Darwin on arm64, expected Linux on x86_64 or aarch64"),
        ("Linux", "riscv64", (13000, 1), "got Linux on riscv64"),
        ("Linux", "x86_64", None, "no NVIDIA driver found: libcuda.so.1 cannot be loaded"),
        ("Linux", "x86_64", (11040, 1), "supports CUDA up to 11.4, and MLX needs 12 or newer"),
        ("Linux", "x86_64", (13000, 0), "finds no GPU"),
    ],
)
def test_what_could_not_run_is_refused_in_a_sentence(mlx_package, system, machine, driver, reason):
    found = None if driver is None else mlx_package.Driver(*driver)
    with pytest.raises(mlx_package.BuildError, match=reason) as refused:
        mlx_package.cuda_package(system, machine, found)
    assert str(refused.value).startswith("--cuda: ")
    assert "\n" not in str(refused.value)


def test_force_is_for_machines_whose_gpu_comes_later(mlx_package):
    without_gpu = mlx_package.Driver(12080, gpus=0)
    assert mlx_package.cuda_package("Linux", "x86_64", None, force=True) == "mlx-cuda-13"
    assert mlx_package.cuda_package("Linux", "x86_64", without_gpu, force=True) == "mlx-cuda-12"
    with pytest.raises(mlx_package.BuildError, match="expected Linux"):
        mlx_package.cuda_package("Darwin", "arm64", None, force=True)


def test_the_version_is_the_one_in_pyproject(mlx_package):
    assert mlx_package.required_version((ROOT / "pyproject.toml").read_text()) == metadata.version("mlx")
    text = '[project]\ndependencies = ["x", "mlx[cpu]==1.2.3rc4; a == b"]'
    assert mlx_package.required_version(text) == "1.2.3rc4"
    with pytest.raises(mlx_package.BuildError, match="expected a dependency"):
        mlx_package.required_version("[project]\ndependencies = []")


@pytest.mark.parametrize("flags", [("--force",), ("--cuda", "--cpu"), ("--gpu",)])
def test_flags_that_contradict_or_do_not_exist_are_refused(flags):
    command = [sys.executable, ROOT / "tools/setup.py", *flags, "--pdm", "pdm"]
    refused = subprocess.run(command, text=True, capture_output=True, check=False)
    assert refused.returncode == 2
    assert "pdm run setup: error: " in refused.stderr
