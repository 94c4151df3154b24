"""A test that hangs is ended, even in native code that holds the GIL."""

import pytest

from ..support.processes.child import run_python

HANGS = """
import ctypes, threading, pytest

def test_that_ends():
    pass

def test_that_waits_for_a_lock():
    threading.Semaphore(0).acquire()

def test_that_holds_the_interpreter():
    ctypes.PyDLL(None).sleep(1000)

@pytest.fixture
def clean_up_that_hangs():
    yield
    threading.Semaphore(0).acquire()

def test_that_fails(clean_up_that_hangs):
    raise AssertionError
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hangs_in", "options"),
    [
        ("test_that_waits_for_a_lock", "test_that_waits_for_a_lock", ()),
        ("test_that_waits_for_a_lock", "test_that_waits_for_a_lock", ("-p", "no:capture")),
        ("test_that_holds_the_interpreter", "test_that_holds_the_interpreter", ()),
        ("test_that_fails", "clean_up_that_hangs", ()),
    ],
)
def test_a_test_that_hangs_is_ended_and_named(name, hangs_in, options, tmp_path, monkeypatch):
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGS)
    monkeypatch.setenv("TINY_LLM_TEST_SECONDS", "1")
    arguments = ("-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", "/dev/null")
    ended = run_python("-m", "pytest", *arguments, *options, str(file), "-k", f"that_ends or {name}")
    assert ended.returncode == 1
    assert f"in {hangs_in}" in ended.stderr
    assert "Timeout" in ended.stderr
