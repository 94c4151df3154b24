"""The set-up that every `pdm run` starts with: when it installs and builds again, and when not."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress

import pytest

from ..support.processes.child import ROOT

# A build that takes a moment, during which a source file changes.
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(edited_during_its_build LANGUAGES NONE)
add_custom_target(module ALL
  COMMAND ${{CMAKE_COMMAND}} -E touch "{module}"
  COMMAND ${{CMAKE_COMMAND}} -E copy "{edited}" "{source}")
"""


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """tools/setup.py in a tree of its own, which it has not set up yet."""
    for name in ("tools/setup.py", "tools/mlx_package.py", "src/extensions/build.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("pyproject.toml", "pdm.lock", "src/extensions/kernel.cpp"):
        (tmp_path / name).write_text("before")
    (tmp_path / "edited").write_text("after")
    (tmp_path / "src/extensions/tiny_llm_ext").mkdir()
    (tmp_path / "build").mkdir()

    # setup.py imports the modules beside it; the test restores sys.path and sys.modules.
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("build", "mlx_package"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    specification = importlib.util.spec_from_file_location("setup_under_test", tmp_path / "tools/setup.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "PACKAGES_STAMP", tmp_path / "packages")  # not those of this environment
    monkeypatch.setattr(module, "MLX_CHOICE", tmp_path / "mlx")
    monkeypatch.setattr(module, "SITE", str(tmp_path / "site"))
    places = {"module": module.extension.MODULE, "edited": tmp_path / "edited",
              "source": tmp_path / "src/extensions/kernel.cpp"}  # fmt: skip
    (tmp_path / "CMakeLists.txt").write_text(CMAKE.format(**places))
    return module


def installer(program):
    """A command in the place of pdm, so that nothing is downloaded."""
    return [sys.executable, "-c", program]


def test_a_source_that_is_edited_during_the_build_is_built_once_more(setup):
    setup.set_up(installer("pass"))
    assert setup.extension.MODULE.is_file()
    assert (setup.ROOT / "src/extensions/kernel.cpp").read_text() == "after"
    assert not setup.extension_is_ready()
    setup.set_up(installer("pass"))
    assert setup.extension_is_ready()


def test_a_build_folder_that_is_carried_to_another_machine_is_built_once_more(setup):
    setup.set_up(installer("pass"))
    setup.set_up(installer("pass"))
    machine = setup.extension.MACHINE_ISAS
    machine.with_suffix(".txt").write_text("avx2\nscalar\n")
    for isas, ready in (("avx2 scalar", True), ("avx512 avx2 scalar", False), ("scalar", True)):
        machine.write_text(f"#!/bin/sh\nprintf '%s\\n' {isas}\n")
        machine.chmod(0o755)
        assert setup.extension_is_ready() == ready


def test_a_build_that_was_stopped_before_its_kernels_were_chosen_goes_on(setup):
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


@pytest.mark.parametrize("terminal", [False, True], ids=["log", "terminal"])
def test_a_build_shows_how_far_it_is(setup, terminal):
    steps = [
        f"add_custom_target(step{number} ALL COMMAND ${{CMAKE_COMMAND}} -E true)" for number in range(20)
    ]
    header = "cmake_minimum_required(VERSION 3.25)\nproject(many_steps LANGUAGES NONE)\n"
    (setup.ROOT / "CMakeLists.txt").write_text(header + "\n".join(steps))
    reader, errors = os.openpty() if terminal else os.pipe()
    subprocess.run([sys.executable, setup.ROOT / "src/extensions/build.py"], stderr=errors, check=True)
    os.close(errors)
    output = b""
    with open(reader, "rb", buffering=0) as screen, suppress(OSError):  # a terminal ends with an error
        while read := screen.read(4096):
            output += read
    said = output.decode()
    if terminal:
        assert len(re.findall(r"\r\x1b\[K  █*░* \d+/20", said)) == 19
        assert "\r\x1b[KBuilt" in said
    else:
        assert re.findall(r"^  (\d+) of 20$", said, flags=re.MULTILINE) == [str(n) for n in range(2, 20, 2)]


def test_an_error_of_ninja_itself_is_shown(setup):
    absent = "add_custom_target(module ALL DEPENDS ${CMAKE_SOURCE_DIR}/absent.cpp)"
    header = "cmake_minimum_required(VERSION 3.25)\nproject(no_source LANGUAGES NONE)\n"
    (setup.ROOT / "CMakeLists.txt").write_text(header + absent)
    with pytest.raises(setup.extension.BuildError, match=r"ninja: error: .*absent\.cpp"):
        setup.extension.build()


def test_a_lock_file_that_is_edited_during_the_installation_is_installed_once_more(setup):
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


def test_a_second_set_up_prints_that_it_waits(setup, tmp_path):
    """Its output goes to a file: pytest's capture loses text that is written while the capture is read."""
    said = tmp_path / "said"
    with said.open("w") as file, redirect_stderr(file), ThreadPoolExecutor() as threads:
        with setup.extension.one_at_a_time():
            second = threads.submit(setup.main, installer("pass"))
            deadline = time.monotonic() + 60
            while "Waiting for another set-up" not in said.read_text():
                assert not second.done()
                assert time.monotonic() < deadline
        assert second.result(timeout=60) == 0


@pytest.mark.parametrize("package", ["tiny_llm", "tiny_llm_tools"])
def test_packages_are_installed_again_when_a_module_moves_but_not_when_it_is_edited(setup, package):
    """An editable install maps module names to files, so a move makes its map wrong."""
    package = setup.ROOT / "src" / package
    (package / "models").mkdir(parents=True)
    module = package / "layers.py"
    module.write_text("before")
    setup.set_up(installer("pass"))
    assert setup.packages_are_ready()
    module.write_text("after")
    assert setup.packages_are_ready()
    module.rename(package / "models/layers.py")
    assert not setup.packages_are_ready()


def write_editable_install(setup, tree):
    """In the environment of `setup`: the metadata of a tiny-llm that runs from `tree`."""
    information = setup.ROOT / "site/tiny_llm-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-llm\nVersion: 0.1.0\n")
    origin = {"url": tree.as_uri(), "dir_info": {"editable": True}}
    (information / "direct_url.json").write_text(json.dumps(origin))


def test_the_environment_of_another_tree_is_refused_before_it_changes(setup, tmp_path, capsys):
    other = tmp_path / "the other tree"
    other.mkdir()
    write_editable_install(setup, other)
    changed = installer(f"open({str(tmp_path / 'changed')!r}, 'w')")
    assert setup.main(changed) == 1
    said = capsys.readouterr().err
    assert f"belongs to {other}, whose tiny-llm it runs: remove the file .pdm-python" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "changed").exists()


@pytest.mark.parametrize("owner", ["this tree", "a tree that was removed", "a copy with its environment"])
def test_an_environment_that_no_other_tree_uses_is_set_up(setup, tmp_path, monkeypatch, owner):
    tree = setup.ROOT if owner == "this tree" else tmp_path / "another"
    if owner == "a copy with its environment":
        tree.mkdir()
        monkeypatch.setattr(sys, "prefix", str(setup.ROOT / ".venv"))
    write_editable_install(setup, tree)
    assert setup.main(installer("pass")) == 0
    assert setup.packages_are_ready()
