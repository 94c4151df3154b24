"""Where the project lies, and what its pyproject.toml and its timetable say."""

import tomllib
from typing import Any

from ..support.processes.child import ROOT


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def timetable() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "course.toml").read_text())["chapter"]
