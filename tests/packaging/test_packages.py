"""A wheel in a clean environment, and an editable installation, work away from the source tree."""

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
USE = """
import tiny_llm_ext
from tiny_llm import *
query, key, value = mx.random.normal((3, 1, 2, 100, 32))
fast = flash_attention(query, key, value, mask="causal", on_fallback="error")
assert mx.allclose(fast, scaled_dot_product_attention_grouped(query, key, value, mask="causal"), atol=1e-5)
print(tiny_llm_ext.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output; nothing of the environment may point back to the source tree."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    result = subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def new_environment(folder: Path) -> Path:
    """The Python of a fresh virtual environment with pip."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """A copy of all that a build needs, so that nothing is built or changed in this tree."""
    copy = tmp_path_factory.mktemp("source") / "tiny-llm"
    copy.mkdir()
    for name in ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.dylib")
    shutil.copytree(ROOT / "src", copy / "src", ignore=built)
    return copy


@pytest.fixture(scope="session")
def wheel(source) -> Path:
    python = new_environment(source.parent / "builder")
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", source.parent / "dist", ".", cwd=source)
    (built,) = (source.parent / "dist").glob("*.whl")
    return built


def test_a_wheel_holds_its_packages_and_all_they_need(source, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = {"tiny_llm", "tiny_llm_ext", "tiny_llm_tools"}
    assert {*(f"{package}/py.typed" for package in packages), "tiny_llm_ext/_ext.pyi"} <= names
    assert [name for name in names if name.startswith("tiny_llm_ext/_ext.") and name.endswith(".so")]
    kernels = {path.name for path in (source / "src" / "extensions").rglob("*.metal")}
    assert kernels <= {Path(name).name for name in names}
    for folder in ("tiny_llm_tools/profile/page", "tiny_llm/server/page"):
        page = [path for path in (source / "src" / folder).rglob("*.*") if path.is_file()]
        assert page
        assert {path.relative_to(source / "src").as_posix() for path in page} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == packages
    assert [name for name in names if name.endswith((".cpp", ".h", ".pyc"))] == []


def test_a_wheel_has_every_instruction_set(source, wheel):
    compiled = {path.stem for path in (source / "build").rglob("*isa_*.cpp.o")}
    every = {path.name for path in (source / "src" / "extensions" / "src" / "cpu" / "isa").glob("isa_*.cpp")}
    is_x86 = platform.machine() == "x86_64"
    assert compiled == (every - {"isa_neon.cpp"} if is_x86 else {"isa_neon.cpp", "isa_scalar.cpp"})


def test_a_wheel_works_in_a_clean_environment(wheel, tmp_path):
    python = new_environment(tmp_path / "clean")
    run(python, "-m", "pip", "install", "-q", wheel, cwd=tmp_path)
    assert str(tmp_path / "clean") in run(python, "-c", USE, cwd=tmp_path)
    info = json.loads(run(python.parent / "tiny-llm", "info", "--json", cwd=tmp_path))
    assert info["extension"]["loaded"]
    assert info["tiny_llm"] == wheel.name.split("-")[1]


def test_an_editable_installation_uses_the_library_in_the_source_tree(source, tmp_path):
    python = new_environment(tmp_path / "editable")
    run(python, "-m", "pip", "install", "-q", "-e", source, cwd=tmp_path)
    assert str(source / "src" / "extensions") in run(python, "-c", USE, cwd=tmp_path)
    in_tree = (
        "import sys; sys.path.insert(0, 'src'); from extensions import tiny_llm_ext; tiny_llm_ext.cpu_isa()"
    )
    run(python, "-c", in_tree, cwd=source)
