"""Checks of `.ci/run` that are left out while their inputs are those with which they passed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import recorded

from ..support.processes.child import ROOT
from ..support.processes.tools import GIT, call, need

SCRIPT = (ROOT / ".ci/run").read_text()
FUNCTIONS = "\n".join(re.findall(r"^check\w*\(\) \{\n.*?^\}\n", SCRIPT, re.M | re.S)[:2])


def declared() -> dict[str, list[str]]:
    """The inputs of each such check, as bash expands them."""
    commands = SCRIPT.replace("\\\n", " ")
    arrays = re.findall(r"^\w+=\(.*\)$", commands, re.M)
    calls = re.findall(r"^ *(check_if_changed .*? -- )", commands, re.M)
    show = 'check_if_changed() { printf "%s\\n" "$@"; echo; }'
    script = "\n".join([show, *arrays, *calls])
    shown = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, text=True, capture_output=True, check=True
    ).stdout
    checks = [text.splitlines() for text in shown.split("--\n\n")]
    return {lines[0]: lines[1:] for lines in checks if lines}


CHECKS = declared()


def test_each_check_of_the_script_is_found_once():
    assert len(CHECKS) == len(re.findall(r"^ *check_if_changed ", SCRIPT, re.M)) > 0


@pytest.mark.parametrize("name", CHECKS)
def test_each_input_of_a_check_is_a_file_or_folder_of_git(name, monkeypatch):
    need(GIT)
    monkeypatch.chdir(ROOT)
    found = set(recorded.files([*recorded.ALWAYS, *(text for text in CHECKS[name] if text != recorded.CPU)]))
    assert {Path(".ci/run"), Path(".ci/bare"), Path("tools/recorded.py")} < found
    assert recorded.RECORD not in found


def test_the_record_has_no_other_checks():
    lines = (ROOT / recorded.RECORD).read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64} .+", line) for line in lines)
    names = [line.split(" ", 1)[1] for line in lines]
    assert names == sorted(set(names))
    assert set(names) <= set(CHECKS)


class Tree:
    """A small repository with the functions of `.ci/run` that run checks, and a check that reads `data`."""

    def __init__(self, folder: Path):
        self.root = folder
        for path in ("data/kernel.cpp", "other.py", ".ci/run"):
            self.write(path, "old")
        self.write(".gitignore", "*.so\n")
        self.write("tools/recorded.py", (ROOT / "tools/recorded.py").read_text())
        call("git", "-C", folder, "init", "-q")
        call("git", "-C", folder, "add", ".")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def outcome(self, command: str = "true", option: str = "", name: str = "a check") -> str:
        script = (
            f'all={option}\noutcomes=outcomes.so\n{FUNCTIONS}\ncheck_if_changed "{name}" data -- {command}'
        )
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        shown = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.root,
            env={"PATH": path},
            text=True,
            capture_output=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stdout + shown.stderr
        found = re.search(r"^--- .*?: (\w+)", shown.stdout, re.M)[1]
        assert (self.root / "outcomes.so").read_text().split()[-1] == found
        return found


@pytest.fixture
def tree(tmp_path) -> Tree:
    need(GIT)
    tree = Tree(tmp_path / "tree")
    assert [tree.outcome(), tree.outcome()] == ["passed", "unchanged"]
    return tree


CHANGES = {
    "a file": lambda root: (root / "data/kernel.cpp").write_text("new"),
    "an executable": lambda root: (root / "data/kernel.cpp").chmod(0o755),
    "a link": lambda root: (root / "data/link").symlink_to("kernel.cpp"),
    "a new file": lambda root: (root / "data/other.cpp").write_text(""),
    "a name": lambda root: (root / "data/kernel.cpp").rename(root / "data/other.cpp"),
    "a deleted file": lambda root: (root / "data/kernel.cpp").unlink(),
    "how checks run": lambda root: (root / ".ci/run").write_text("new"),
    "how inputs are found": lambda root: (root / "tools/recorded.py").open("a").write("\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_check_runs_when_its_inputs_changed(tree, change):
    CHANGES[change](tree.root)
    assert [tree.outcome(), tree.outcome()] == ["passed", "unchanged"]


def test_a_check_does_not_run_when_something_else_changed(tree):
    tree.write("other.py", "new")
    tree.write("data/kernel.so", "git ignores it")
    os.utime(tree.root / "data/kernel.cpp", (0, 0))
    call("git", "-C", tree.root, "add", ".")
    assert tree.outcome() == "unchanged"


def test_another_command_or_name_is_another_check(tree):
    assert [tree.outcome("test 1"), tree.outcome(name="another check")] == ["passed", "passed"]
    lines = (tree.root / recorded.RECORD).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["a check", "another check"]


def test_a_check_that_fails_is_not_recorded(tree):
    tree.write("data/kernel.cpp", "new")
    assert [tree.outcome("false"), tree.outcome("false")] == ["FAILED", "FAILED"]
    tree.write("data/kernel.cpp", "old")
    assert tree.outcome() == "unchanged"


def test_inputs_that_change_while_a_check_runs_are_not_recorded(tree):
    change = "eval 'date +%N >data/kernel.cpp'"
    assert [tree.outcome(change), tree.outcome(change)] == ["passed", "passed"]


def test_all_checks_can_be_run(tree):
    assert tree.outcome("false", "--all") == "FAILED"


def test_without_a_repository_a_check_runs(tree):
    (tree.root / ".git").rename(tree.root / "removed.so")
    assert [tree.outcome(), tree.outcome()] == ["passed", "passed"]


def test_an_input_that_matches_no_file_is_refused(tree, monkeypatch):
    monkeypatch.chdir(tree.root)
    with pytest.raises(ValueError, match=r"^no_data matches no file$"):
        recorded.files(["data", "no_data"])


def test_a_pass_on_other_instruction_sets_is_none(tree, monkeypatch):
    monkeypatch.chdir(tree.root)
    monkeypatch.setattr(recorded, "instruction_sets", lambda: ["avx2", "scalar"])
    here = recorded.fingerprint("a check", ["data", recorded.CPU], [])
    monkeypatch.setattr(recorded, "instruction_sets", lambda: ["scalar"])
    assert recorded.fingerprint("a check", ["data", recorded.CPU], []) != here
