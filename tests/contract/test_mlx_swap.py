"""`pdm run setup --cuda` in its own environment: the real pip replaces small packages of the same names."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from ..support.processes.child import ROOT
from .test_setup import CMAKE


def write_wheel(folder: Path, name: str, files: dict[str, str], requires: str = "") -> None:
    """A wheel of version 1.0 that pip accepts."""
    module = name.replace("-", "_")
    information = f"{module}-1.0.dist-info"
    every = {
        **files,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for path, text in every.items()
    ]
    every[f"{information}/RECORD"] = "\n".join([*record, f"{information}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in every.items():
            wheel.writestr(path, text)


class Machine:
    """A source tree and an environment without pip, whose MLX is one small file that two packages contain."""

    def __init__(self, folder: Path):
        self.tree, self.wheels, environment = folder / "tree", folder / "wheels", folder / "venv"
        for name in ("tools/setup.py", "tools/mlx_package.py", "src/extensions/build.py"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        (self.tree / "src/extensions/tiny_llm_ext").mkdir()
        (self.tree / "src/tiny_llm").mkdir()
        (self.tree / "pdm.lock").touch()
        (self.tree / "pyproject.toml").write_text('[project]\ndependencies = ["mlx[cpu]==1.0"]')
        suffix = subprocess.check_output(
            [sys.executable, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"],
            text=True,
        ).strip()
        module = self.tree / f"src/extensions/tiny_llm_ext/_ext{suffix}"
        same = self.tree / "pdm.lock"
        (self.tree / "CMakeLists.txt").write_text(
            CMAKE.format(module=module, edited=same, source=self.tree / "copy")
        )

        self.wheels.mkdir()
        write_wheel(self.wheels, "mlx-cpu", {"mlx/lib/libmlx.so": "cpu", "mlx/cpu_only.h": ""})
        write_wheel(
            self.wheels, "mlx-cuda-13", {"mlx/lib/libmlx.so": "cuda"}, "Requires-Dist: nvidia-small\n"
        )
        write_wheel(self.wheels, "nvidia-small", {"nvidia/small.so": ""})
        venv.create(environment, with_pip=False)
        self.python = environment / "bin" / "python"
        self.site = next(environment.glob("lib/python*/site-packages"))

    def set_up(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """tools/setup.py; in the place of `pdm sync`, pip installs what pdm.lock would hold."""
        sync = (
            "import subprocess as s, sys; s.run([sys.executable, '-m', 'ensurepip'], capture_output=True);"
            "sys.exit(s.call([sys.executable, '-m', 'pip', 'install', 'mlx-cpu==1.0']))"
        )
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_CONFIG_FILE": os.devnull}
        command = [self.python, self.tree / "tools/setup.py", *flags, "--pdm", self.python, "-c", sync]
        clean = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        return subprocess.run(
            command, env={**clean, **settings}, text=True, capture_output=True, timeout=300, check=False
        )

    @property
    def mlx(self) -> tuple[str, list[str]]:
        """The text of MLX's library, and the packages that have one."""
        packages = sorted(path.name.split("-")[0] for path in self.site.glob("mlx_*.dist-info"))
        return (self.site / "mlx/lib/libmlx.so").read_text(), packages


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="MLX has builds for CUDA on Linux only")
class TestOnLinux:
    def test_the_build_for_cuda_replaces_mlx_cpu_and_stays_until_cpu_is_chosen(self, machine: Machine):
        first = machine.set_up("--cuda", "--force")
        assert first.returncode == 0, first.stderr
        assert (
            "Installed mlx-cuda-13 1.0, replaced mlx-cpu 1.0. `pdm run setup --cpu` goes back."
            in first.stderr
        )
        assert machine.mlx == ("cuda", ["mlx_cuda_13"])
        assert (machine.site / "nvidia/small.so").is_file()
        assert not (machine.site / "mlx/cpu_only.h").exists()

        again = machine.set_up()
        assert (again.returncode, again.stderr) == (0, "")
        (machine.tree / "src/tiny_llm/layers.py").touch()  # pdm installs once more, and mlx-cpu with the rest
        later = machine.set_up()
        assert later.returncode == 0, later.stderr
        assert machine.mlx == ("cuda", ["mlx_cuda_13"])
        same = machine.set_up("--cuda", "--force")
        assert "mlx-cuda-13 1.0 is installed, nothing is replaced." in same.stderr

        back = machine.set_up("--cpu")
        assert "Installed mlx-cpu 1.0, replaced mlx-cuda-13 1.0." in back.stderr
        assert machine.mlx == ("cpu", ["mlx_cpu"])

    def test_a_download_that_fails_changes_nothing(self, machine: Machine):
        assert machine.set_up().returncode == 0
        (machine.wheels / "nvidia_small-1.0-py3-none-any.whl").unlink()
        failed = machine.set_up("--cuda", "--force")
        assert failed.returncode == 1
        assert failed.stderr.splitlines()[-1].endswith("Is this machine online?")
        assert machine.mlx == ("cpu", ["mlx_cpu"])
        ready = machine.set_up()
        assert (ready.returncode, ready.stderr) == (0, "")
