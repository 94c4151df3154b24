"""Every `pdm run` script, in an environment that pdm makes: without pip, and activated by nothing."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..contract.project import pyproject
from ..support.processes.child import ROOT

# A little work for each script, or --help where that takes minutes, waits for input or needs a Mac. A new
# environment is set up first; the build folder is removed last.
ARGUMENTS = {
    "setup": "",
    "main": "--max-tokens 1",
    "main-week1": "--max-tokens 1",
    "main-week2": "--max-tokens 1",
    "batch-main": "--json",
    "chat": "--help",
    "serve": "--help",
    "soak": "--help",
    "warm-up": "--help",
    "demo": "--tokens 64",
    "visualize": "--help",
    "bench": "attention --help",
    "test": "-- -q tests/contract/test_names.py",
    "course": "progress --help",
    "book": "--help",
    "book-build": "",
    "test-metal": "--help",
    "check-mac": "--help",
    "bench-test": "-q --collect-only",
    "check-installation": "",
    "build-ext": "",
    "build-ext-test": "",
    "format": "",
    "format-cpp": "",
    "lint": "--version",
    "clean-ext": "",
}


def test_every_script_is_tried():
    assert set(ARGUMENTS) == set(pyproject()["tool"]["pdm"]["scripts"])


def pdm(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the pdm of this environment as one from pipx or of the system: it chooses an environment itself."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PDM_IGNORE_SAVED_PYTHON")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    env |= {"TINY_LLM_BUILD_ISAS": "scalar", "CCACHE_BASEDIR": str(tree)}
    command, quiet = [sys.executable, "-m", "pdm", *words], subprocess.DEVNULL
    return subprocess.run(
        command, cwd=tree, env=env, stdin=quiet, text=True, capture_output=True, check=False
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    copy = tmp_path_factory.mktemp("scripts") / "tiny-llm"
    ours = ("build", "dist", "my_llm", ".git", ".venv", ".pdm-python", "__pycache__", ".*_cache", "*.so")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*ours))
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_script_works_in_an_environment_that_pdm_makes(tree, script):
    ran = pdm(tree, "run", script, *shlex.split(ARGUMENTS[script]))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tree / ".venv").is_dir()


@pytest.mark.slow
def test_a_copy_of_the_tree_leaves_the_environment_of_the_first_alone(tree, tmp_path):
    """`.pdm-python` was copied, too."""
    for name in (".pdm-python", "pyproject.toml", "pdm.lock", "tools", "src/extensions/build.py"):
        copy = shutil.copytree if (tree / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy(tree / name, tmp_path / name)
    before = (tree / ".venv/tiny_llm_packages").read_text()
    refused = pdm(tmp_path, "run", "setup")
    assert refused.returncode == 1
    assert f"{tree / '.venv'} belongs to {tree}" in refused.stderr
    assert (tree / ".venv/tiny_llm_packages").read_text() == before
