"""Commands and code in README.md and the other pages run and print what is shown; links lead to files."""

import doctest
import os
import re
import shlex

import pytest

from ..support.processes.child import ROOT, run_python
from .project import pyproject

PATHS = {
    path.relative_to(ROOT).as_posix(): path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("book/**/*.md")]
}
PAGES = {name: path.read_text() for name, path in PATHS.items()}
# A block of text right after a block of Python, or after one command, is what that prints. "..." in it
# stands for anything, such as a time.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n?```text\n(.*?)^```$)?", re.S | re.M)
COMMAND_AND_OUTPUT = re.compile(r"^```sh\n([^\n]*)\n```\n```text\n(.*?)^```$", re.S | re.M)
# The tour is longer, and tests/e2e runs it.
EXAMPLES = {page: BLOCK.findall(text) for page, text in PAGES.items() if page != "docs/tour.md"}
WITH_OUTPUT = [page for page, blocks in EXAMPLES.items() if any(output for _, output in blocks)]
PYTHON = [page for page, blocks in EXAMPLES.items() if blocks and page not in WITH_OUTPUT]
OUTPUTS = [
    (page, command, output)
    for page, text in PAGES.items()
    for command, output in COMMAND_AND_OUTPUT.findall(text)
]
COMMANDS = sorted(
    {
        command.strip()
        for text in PAGES.values()
        for command in re.findall(r"\bpdm (?:run|bench)\b[^`#\n]*", text)
    }
)
# The others take minutes or rewrite the tree.
RUN_HERE = {"main", "check-installation"}


def script_and_arguments(command: str) -> tuple[str, list[str]]:
    words = shlex.split(command)[1:]
    script, *arguments = words[1:] if words[0] == "run" else words
    return script, arguments


@pytest.mark.parametrize("page", PYTHON)
def test_python_blocks_run(page):
    """In one process, but with names of their own: a block does not need the one before it."""
    blocks = [code for code, _ in EXAMPLES[page]]
    each = 'exec(compile(code, "a block", "exec"), {"__name__": "__main__"})'
    result = run_python("-c", f"for code in {blocks!r}:\n    {each}")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_OUTPUT)
def test_examples_print_what_is_shown(page):
    """In one process, from top to bottom, as a reader types them: later blocks use names of earlier ones."""
    end = "== end of a block =="
    result = run_python("-c", "".join(f"{code}\nprint({end!r})\n" for code, _ in EXAMPLES[page]))
    assert (result.returncode, result.stderr) == (0, "")
    printed = result.stdout.split(f"{end}\n")[:-1]
    assert len(printed) == len(EXAMPLES[page])
    for (_, shown), output in zip(EXAMPLES[page], printed, strict=True):
        assert_shown(shown, output)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "shown"), OUTPUTS, ids=[command for _, command, _ in OUTPUTS])
def test_a_command_prints_what_is_shown(page, command, shown):
    script, arguments = script_and_arguments(command)
    setup, line = pyproject()["tool"]["pdm"]["scripts"][script]["composite"]
    assert setup == "setup"
    result = run_python(*shlex.split(line.replace("{args}", ""))[1:], *arguments)
    assert result.returncode == 0, result.stderr
    assert_shown(shown, result.stdout)


def assert_shown(shown: str, printed: str) -> None:
    if not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
        assert printed == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_a_script(command):
    script = script_and_arguments(command)[0]
    assert script == "python" or script in pyproject()["tool"]["pdm"]["scripts"]


@pytest.mark.parametrize(
    "script", sorted(RUN_HERE & {script_and_arguments(command)[0] for command in COMMANDS})
)
def test_a_command_runs(script):
    setup, line = pyproject()["tool"]["pdm"]["scripts"][script]["composite"]
    result = run_python(*shlex.split(line.replace("{args}", ""))[1:])
    assert setup == "setup"
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        command
        for command in COMMANDS  # tests of starter files run with --solution
        if script_and_arguments(command)[0] == "test" and "--solution" not in command
    ],
)
def test_a_test_command_finds_tests(command):
    _, arguments = script_and_arguments(command)
    dashes = [] if "--" in arguments else ["--"]
    result = run_python("tools/course.py", "test", *arguments, *dashes, "--collect-only", "-q")
    assert result.returncode == 0, result.stdout + result.stderr


def test_ci_begins_with_the_two_commands_before_it_installs_anything():
    section = PAGES["README.md"].split("## Quick start")[1]
    lines = re.search(r"```sh\n(.*?)```", section, re.S)[1].splitlines()
    ci = (ROOT / ".ci/run").read_text()
    before, _ = ci.split("\ninstall_system_packages ")
    assert re.findall(r"\.ci/bare .* '(.*)'", before) == [line.split("  ")[0] for line in lines]
    assert ci.count("\ncheck ") > before.count("\ncheck ") == len(lines) == 2


@pytest.mark.parametrize("page", PAGES)
def test_a_link_has_a_target(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGES[page])
    assert [target for target in targets if not (PATHS[page].parent / target).exists()] == []


def source_names():
    not_sources = {".git", ".venv", "build"}  # tests that run beside this one change the last
    for _, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in not_sources]
        yield from files


@pytest.mark.parametrize("page", PAGES)
def test_a_file_that_is_named_exists(page):
    existing = set(source_names())
    named = set(re.findall(r"[\w-]+\.(?:py|cpp|h|def|cmake|toml|md)\b", PAGES[page]))
    named.discard("llama.cpp")  # a project
    assert {name for name in named if not any(file.endswith(name) for file in existing)} == set()
