"""The learner's folder: a copy of src in which the places of all tasks are empty."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import extension, native, starter
from .tasks import ROOT, Task, all_tasks, messages_by_file

# A learner's layers run their own Python code, not our kernels.
SWITCH = "tiny_llm/runtime/extension.py"
KERNELS = "return None if dtype not in FLOAT_DTYPES or computes_on_gpu() else _built_extension()"
NO_KERNELS = "return None"


def create(folder: Path, tasks: Iterable[Task] | None = None) -> None:
    """Write the starter files, with the places of `tasks` (of all, by default) empty."""
    shutil.copytree(ROOT / "src", folder)
    switch = folder / SWITCH
    text = switch.read_text()
    assert text.count(KERNELS) == 1
    switch.write_text(text.replace(KERNELS, NO_KERNELS))
    for file, messages in messages_by_file(all_tasks() if tasks is None else tasks).items():
        path = folder / file
        path.write_text(emptied(file, path.read_text(), messages))


def emptied(file: str, source: str, messages: Mapping[str, str]) -> str:
    return (starter if file.endswith(".py") else native).emptied(source, messages)


def pytest_command(folder: Path, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that run tests of the project against the packages in `folder`."""
    # -S skips the start-up of site-packages, where an editable install would import the original package.
    pytest = [sys.executable, "-S", "-m", "pytest", "-o", "pythonpath=", "-p", "no:cacheprovider"]
    unwritten = ["-p", "tools.learner.unwritten", "--starter-files", str(folder)]
    return [*pytest, *unwritten, *arguments], environment(folder)


def environment(folder: Path) -> dict[str, str]:
    """The variables with which `python -S` imports the packages in `folder`.

    Builds what changed of its extension first; raises build.BuildError if that does not compile.
    """
    paths = [folder, folder / "extensions", ROOT, Path(sysconfig.get_path("purelib"))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TINY_LLM_TEST_SECONDS": os.environ.get("TINY_LLM_TEST_SECONDS", "120"),  # a loop may not end
        **extension.prepare(folder),
    }


def run_pytest(folder: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    command, environment = pytest_command(folder, arguments)
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
