"""The version of this package, from pyproject.toml or from the metadata of the installation."""

from functools import cache
from importlib import metadata
from pathlib import Path

NAME = "tiny-llm"
PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@cache
def version() -> str:
    """In the source tree the version in pyproject.toml, elsewhere that of the installed package."""
    if PROJECT.is_file():
        import tomllib  # an installed package does not need it

        project = tomllib.loads(PROJECT.read_text(encoding="utf-8")).get("project", {})
        if project.get("name") == NAME:
            return str(project["version"])
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:  # a copy of the package's folder
        return "0+unknown"
