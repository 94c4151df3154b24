"""The learner's folder: a copy of src in which the functions of all tasks are empty."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from .starter import emptied
from .tasks import ROOT, Task, all_tasks

# A learner's layers run their own Python code, not our kernels.
SWITCH = "tiny_llm/runtime/extension.py"
KERNELS = "return None if dtype not in FLOAT_DTYPES or computes_on_gpu() else _built_extension()"
NO_KERNELS = "return None"


def create(folder: Path, tasks: Iterable[Task] | None = None) -> None:
    """Write the starter files, with the functions of `tasks` (of all, by default) empty."""
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    switch = folder / SWITCH
    text = switch.read_text()
    assert text.count(KERNELS) == 1
    switch.write_text(text.replace(KERNELS, NO_KERNELS))
    for file, messages in messages_by_file(all_tasks() if tasks is None else tasks).items():
        path = folder / file
        path.write_text(emptied(path.read_text(), messages))


def messages_by_file(tasks: Iterable[Task]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for task in tasks:
        for place in task.places:
            found[place.file][place.name] = f"{task.label}: {task.title}"
    return found


def pytest_command(folder: Path, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that run tests of the project against the packages in `folder`."""
    # -S skips the start-up of site-packages, where an editable install would import the original package.
    paths = [folder, folder / "extensions", ROOT, Path(sysconfig.get_path("purelib"))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    pytest = [sys.executable, "-S", "-m", "pytest", "-o", "pythonpath=", "-p", "no:cacheprovider"]
    return [*pytest, *arguments], environment


def run_pytest(folder: Path, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    command, environment = pytest_command(folder, arguments)
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False)
