"""The version is that of pyproject.toml everywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

from tiny_llm.runtime import version

from ..contract.project import pyproject
from ..support.processes.child import ROOT, run_python

VERSION = pyproject()["project"]["version"]


def test_the_command_and_the_library_have_it() -> None:
    shown = run_python("-m", "tiny_llm", "--version")
    assert (shown.returncode, shown.stdout) == (0, f"tiny-llm {VERSION}\n")
    imported = run_python("-c", "import tiny_llm; print(tiny_llm.__version__); tiny_llm.no_such_name")
    assert imported.stdout == f"{VERSION}\n"
    assert (
        imported.stderr.splitlines()[-1]
        == "AttributeError: module 'tiny_llm' has no attribute 'no_such_name'"
    )


def test_the_source_tree_takes_precedence_over_an_installed_package(tmp_path: Path) -> None:
    """Also in a tree that was never installed."""
    project = tmp_path / "pyproject.toml"
    copy = tmp_path / Path(version.__file__).relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    shutil.copy(version.__file__, copy)
    program = "import runpy, sys; print(runpy.run_path(sys.argv[1])['version']())"
    for name, expected in (("tiny-llm", "9.8.7"), ("another", VERSION)):
        project.write_text(f'[project]\nname = "{name}"\nversion = "9.8.7"\n')
        assert run_python("-c", program, str(copy)).stdout == f"{expected}\n"
