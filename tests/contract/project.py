"""The folder of the project, its pyproject.toml and its timetable."""

import tomllib
from typing import Any

from ..support.processes.child import ROOT


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def timetable() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "course.toml").read_text())["chapter"]
