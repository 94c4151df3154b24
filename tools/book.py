"""The course as pages: `pdm run book` serves them at a free port, `pdm run book-build` writes build/book."""

import argparse
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TARGET = ROOT / "book", ROOT / "build" / "book"
WATCHED = [ROOT / "src", ROOT / "docs"]  # chapters include code
PACKAGES = ("sphinx", "myst_parser", "furo", "latex2mathml", "sphinx_autobuild")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("serve", "build"))
    options = parser.parse_args()
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        install()
    return serve() if options.action == "serve" else build()


def install() -> None:
    """Install the extra `book` into this environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print("Installing the packages of the book ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "-q", *project["optional-dependencies"]["book"]]
    subprocess.run(command, check=True)


def build(target: Path = TARGET) -> int:
    """Build all pages; a warning, such as of a broken link or of code that has moved, is an error."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", SOURCE, target]
    code = subprocess.run(command).returncode
    if code == 0:
        print(f"Open {target / 'index.html'} in a browser.")
    return code


def serve() -> int:
    watched = [word for path in WATCHED for word in ("--watch", str(path))]
    command = ["-m", "sphinx_autobuild", "--port", "0", "--open-browser", *watched, str(SOURCE), str(TARGET)]
    try:
        return subprocess.run([sys.executable, *command]).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
