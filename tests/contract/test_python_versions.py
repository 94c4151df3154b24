"""The project names the same Python versions everywhere; every locked package has wheels for each."""

import re
import tomllib

import pytest
from packaging.specifiers import SpecifierSet

from ..support.processes.child import ROOT
from .project import pyproject

SUPPORTED = SpecifierSet(pyproject()["project"]["requires-python"])
MINORS = [minor for minor in range(100) if f"3.{minor}" in SUPPORTED]
PACKAGES = tomllib.loads((ROOT / "pdm.lock").read_text())["package"]


def test_the_versions_of_python_are_the_same_everywhere():
    project = pyproject()
    named = [re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", line) for line in
             project["project"]["classifiers"]]  # fmt: skip
    assert [int(match[1]) for match in named if match] == MINORS
    assert project["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in MINORS]
    assert f"Python 3.{MINORS[0]} to 3.{MINORS[-1]} and its headers" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("minor", MINORS)
def test_the_lock_file_has_a_wheel_of_every_package(minor):
    """A lock file made before a new Python version has no files for it, so nothing installs."""
    fits = re.compile(rf"-(py\d\.)*py3-|-abi3-|-cp3{minor}-(cp3{minor}|none)-|-none-(any|manylinux|macosx)")
    without = [
        package["name"]
        for package in PACKAGES
        if "files" in package and not any(fits.search(file["file"]) for file in package["files"])
    ]
    assert without == []
