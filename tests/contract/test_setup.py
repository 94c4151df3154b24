"""The set-up of `pdm run`: files edited while it runs do not count as installed or built."""

import importlib.util
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr

import pytest

from ..support.processes.child import ROOT

# A short build, during which a source file is edited.
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(edited_during_its_build LANGUAGES NONE)
add_custom_target(module ALL
  COMMAND ${{CMAKE_COMMAND}} -E touch "{module}"
  COMMAND ${{CMAKE_COMMAND}} -E copy "{edited}" "{source}")
"""


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """tools/setup.py in a new tree that is not set up yet."""
    for name in ("tools/setup.py", "src/extensions/build.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("pyproject.toml", "pdm.lock", "src/extensions/kernel.cpp"):
        (tmp_path / name).write_text("before")
    (tmp_path / "edited").write_text("after")
    (tmp_path / "src/extensions/tiny_llm_ext").mkdir()
    (tmp_path / "build").mkdir()

    # It imports src/extensions/build.py of the new tree; the test undoes this at its end.
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setitem(sys.modules, "build", None)
    del sys.modules["build"]
    specification = importlib.util.spec_from_file_location("setup_under_test", tmp_path / "tools/setup.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "PACKAGES_STAMP", tmp_path / "packages")  # not that of this environment
    places = {"module": module.extension.MODULE, "edited": tmp_path / "edited",
              "source": tmp_path / "src/extensions/kernel.cpp"}  # fmt: skip
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(**places))
    return module


def installer(program):
    """A command in place of pdm, so that nothing is downloaded."""
    return [sys.executable, "-c", program]


def test_a_source_edited_during_the_build_is_built_again(setup):
    setup.set_up(installer("pass"))
    assert setup.extension.MODULE.is_file()
    assert (setup.ROOT / "src/extensions/kernel.cpp").read_text() == "after"
    assert not setup.extension_is_ready()
    setup.set_up(installer("pass"))
    assert setup.extension_is_ready()


def test_a_build_folder_moved_to_another_machine_is_built_again(setup):
    setup.set_up(installer("pass"))
    setup.set_up(installer("pass"))
    machine = setup.extension.MACHINE_ISAS
    machine.with_suffix(".txt").write_text("avx2\nscalar\n")
    for isas, ready in (("avx2 scalar", True), ("avx512 avx2 scalar", False), ("scalar", True)):
        machine.write_text(f"#!/bin/sh\nprintf '%s\\n' {isas}\n")
        machine.chmod(0o755)
        assert setup.extension_is_ready() == ready


def test_a_build_stopped_during_configuration_is_continued(setup):
    setup.set_up(installer("pass"))
    machine = setup.extension.MACHINE_ISAS
    machine.write_text("#!/bin/sh\n")
    machine.chmod(0o755)
    setup.set_up(installer("pass"))
    assert setup.extension_is_ready()


def test_a_build_without_set_up_waits_for_it(setup):
    with setup.extension.one_at_a_time():
        command = [sys.executable, setup.ROOT / "src/extensions/build.py"]
        build = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert "Waiting for another set-up" in build.stderr.readline()
        assert not setup.extension.MODULE.is_file()
    build.communicate(timeout=60)
    assert build.returncode == 0
    assert setup.extension.MODULE.is_file()


def test_a_lock_file_edited_during_the_installation_is_installed_again(setup):
    edit = installer(f"open({str(setup.ROOT / 'pdm.lock')!r}, 'w').write('after')")
    setup.set_up(edit)
    assert not setup.packages_are_ready()
    setup.set_up(edit)
    assert setup.packages_are_ready()


def test_a_failed_installation_is_not_remembered(setup):
    with pytest.raises(setup.extension.BuildError, match="could not be installed"):
        setup.set_up(installer("raise SystemExit(1)"))
    assert not setup.packages_are_ready()
    assert not setup.extension.MODULE.is_file()


def test_a_second_set_up_says_that_it_waits(setup, tmp_path):
    """Its output goes to a file: pytest loses output that is written while it reads the captured text."""
    said = tmp_path / "said"
    with said.open("w") as file, redirect_stderr(file), ThreadPoolExecutor() as threads:
        with setup.extension.one_at_a_time():
            second = threads.submit(setup.main, installer("pass"))
            deadline = time.monotonic() + 60
            while "Waiting for another set-up" not in said.read_text():
                assert not second.done()
                assert time.monotonic() < deadline
        assert second.result(timeout=60) == 0
