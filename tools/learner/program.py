"""The programs with a learner's code: `--solution my_llm` of main, chat, batch-main and bench."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import extension
from .commands import existing
from .fallback import option, with_fallbacks
from .tasks import ROOT
from .workspace import environment


def named_folder(arguments: Sequence[str]) -> str | None:
    """The value of --solution if it is a folder of the project; other values are names of solutions."""
    given = option(arguments, "--solution")
    return given if given and (ROOT / given).is_dir() else None


def restart_in_solution(program: Sequence[str | Path], arguments: Sequence[str]) -> None:
    """Replace this process by one that finds the packages of the folder of --solution first, if it names one.

    Called before tiny_llm is imported. An editable install would import the original: -S leaves it out.
    """
    name = named_folder(arguments)
    if name is None or str(folder := existing(name)) in sys.path:
        return
    arguments = with_fallbacks(Path(program[-1]).name, arguments, folder)
    try:
        variables = environment(folder)
    except extension.build.BuildError as error:
        sys.exit(str(error))
    os.execve(sys.executable, [sys.executable, "-S", *program, *arguments], variables)
