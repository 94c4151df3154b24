"""The modules without a document, under Node's test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ...support.processes.child import ROOT

pytestmark = pytest.mark.browser
MODULES = "src/tiny_llm/server/page"
TESTS = "tests/server/page/unit"


def test_the_modules_under_node(tmp_path: Path) -> None:
    """In a copy, beside a package.json which says that .js is a module: the browser needs none."""
    for folder in (MODULES, TESTS):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.py", "__pycache__")
        )
    (tmp_path / "package.json").write_text('{"type": "module"}')
    run = subprocess.run(
        ["node", "--test", f"{TESTS}/"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# pass 0\n" not in run.stdout
