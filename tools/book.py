"""The course as pages: `pdm run book` serves them on this machine, `pdm run book-build` writes build/book."""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import setup

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TARGET = ROOT / "book", ROOT / "build" / "book"
WATCHED = [SOURCE, ROOT / "src", ROOT / "docs", ROOT / "benches"]  # chapters include code and records
PACKAGES = ("sphinx", "myst_parser", "furo", "latex2mathml", "starlette", "uvicorn", "watchfiles")
PORT = 8010


def main() -> int:
    parser = argparse.ArgumentParser(prog="book", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    building = actions.add_parser("build", help="write static pages, which need no server")
    serving = actions.add_parser(
        "serve", help="serve the pages; a page is built again when its source changes"
    )
    for action in (building, serving):
        action.add_argument(
            "--output", type=Path, default=TARGET, metavar="FOLDER", help="where the pages are written"
        )
    serving.add_argument(
        "--port", type=port_number, default=PORT, metavar="N",
        help="where to listen; 0 is a free port (default: %(default)s)",
    )  # fmt: skip
    serving.add_argument(
        "--open", action=argparse.BooleanOptionalAction, default=True,
        help="open the pages in the browser, if there is a display (default: --open)",
    )  # fmt: skip
    for action in (building, serving):
        action.add_argument("--pdm", nargs=argparse.REMAINDER, default=["pdm"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if any(importlib.util.find_spec(name) is None for name in PACKAGES):
        try:
            install(options.pdm)
        except setup.extension.BuildError as error:
            print(f"book: {error}", file=sys.stderr)
            return 1
    if options.action == "build":
        return build(options.output)
    return serve(options.output, options.port, options.open)


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a port from 0 to 65535")
    return int(text)


def install(pdm: list[str]) -> None:
    """Install the extra `book` into this environment; only this needs a network."""
    with setup.extension.one_at_a_time():
        setup.install_packages(pdm, "--prod", "--no-default", "--no-self", "--group", "book")


def build(target: Path = TARGET) -> int:
    """Build all pages; a warning, such as of a broken link or of code that has moved, is an error."""
    code = run_sphinx("-W", "--keep-going", target=target)
    if code == 0:
        print(f"Open {target / 'index.html'} in a browser.")
    return code


def run_sphinx(*options: str, target: Path) -> int:
    command = [sys.executable, "-m", "sphinx", *options, "-q", "-b", "html", SOURCE, target]
    return subprocess.run(command).returncode


def serve(target: Path, port: int, open_browser: bool) -> int:
    """Serve the pages until Ctrl-C. Warnings of a build are printed, and the pages are shown all the same."""
    sys.path[:0] = [str(ROOT / "src" / "extensions"), str(ROOT / "src")]
    from book_server.run import listen, run

    try:
        bound = listen(port)
    except OSError as error:
        print(
            f"book: --port: cannot listen at {port} ({os.strerror(error.errno)}): another program may "
            "use it; try `pdm run book --port 0`, which takes a free one",
            file=sys.stderr,
        )
        return 1
    try:
        print("Building the pages ...", flush=True)
        code = run_sphinx(target=target)
        if not (target / "index.html").exists():
            return code or 1
        run(
            bound, target, build=lambda: run_sphinx(target=target), watched=WATCHED, open_browser=open_browser
        )
    except KeyboardInterrupt:
        pass
    finally:
        bound.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
