"""Forks of pytest: each run is new, and one that hangs is ended."""

import shutil
import sysconfig
from contextlib import closing

from ..support.processes.child import ROOT
from .pytest_forks import PytestForks

TESTS = """
import module

def test_value():
    assert module.VALUE == 1

def test_that_hangs():
    while module.VALUE == 2:
        pass
"""


def test_each_run_imports_anew_and_ends(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_module.py").write_text(TESTS)
    with closing(PytestForks(tmp_path, [str(tmp_path), sysconfig.get_path("purelib")])) as forks:
        for value, name, expected in (
            (1, "value", "1 passed"),
            (2, "value", "1 failed"),
            (2, "hangs", "Timeout"),
        ):
            (tmp_path / "module.py").write_text(f"VALUE = {value}\n")
            _, output = forks.run(["-q", "-k", name], {"TINY_LLM_TEST_SECONDS": "1"})
            assert expected in output
