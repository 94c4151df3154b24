"""The version of this package: that of pyproject.toml, which an installed package keeps a copy of."""

from functools import cache
from importlib import metadata
from pathlib import Path

NAME = "tiny-llm"
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@cache
def version() -> str:
    """In the source tree what pyproject.toml says today, installed or not; elsewhere what was installed."""
    if PROJECT.is_file():
        import tomllib  # not above: an installed package does without

        project = tomllib.loads(PROJECT.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == NAME:
            return str(project["version"])
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:  # a copy of the package's folder
        return "0+unknown"
