"""The first step of `pdm run main` and `pdm run test`: install the packages and build the extension, once.

Two fingerprints record what was set up. While they match, this takes a few milliseconds and no network.
All messages go to standard error, to keep them out of the output of the command that follows.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src" / "extensions"))
import build as extension  # noqa: E402

PACKAGES_STAMP = Path(sys.prefix) / "tiny_llm_packages"
EXTENSION_STAMP = extension.BUILD / "fingerprint"
LOG = ROOT / "build" / "packages.log"


def fingerprint(paths: list[Path], *words: str) -> str:
    """A hash of the files, their paths, this Python and the words."""
    digest = hashlib.sha256(" ".join([str(ROOT), sys.version, *words]).encode())
    for path in sorted(paths):
        digest.update(str(path).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def packages_fingerprint() -> str:
    """Includes the names of modules, because an editable install lists them."""
    modules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src" / "tiny_llm").rglob("*.py"))
    return fingerprint([ROOT / "pyproject.toml", ROOT / "pdm.lock"], *modules)


def extension_fingerprint() -> str:
    native = ROOT / "src" / "extensions"
    sources = [path for path in native.rglob("*") if path.is_file() and extension.PACKAGE not in path.parents]
    sources = [path for path in sources if path.suffix != ".pyc"]
    asked = os.environ.get("TINY_LLM_BUILD_ISAS", "")
    return fingerprint([ROOT / "CMakeLists.txt", ROOT / "pdm.lock", *sources], asked)


def recorded(stamp: Path) -> str:
    return stamp.read_text() if stamp.is_file() else ""


def packages_are_ready() -> bool:
    return recorded(PACKAGES_STAMP) == packages_fingerprint()


def extension_is_ready() -> bool:
    return (
        extension.MODULE.is_file()
        and recorded(EXTENSION_STAMP) == extension_fingerprint()
        and extension.is_for_this_machine()
    )


def install_packages(pdm: list[str]) -> None:
    """Install the packages of pdm.lock, and tiny-llm itself as an editable package, without compiling it."""
    start = time.monotonic()
    print("Installing the packages of pdm.lock ...", file=sys.stderr, flush=True)
    process = subprocess.Popen(
        [*pdm, "sync", "--no-isolation", "--project", ROOT],
        env={**os.environ, "SKBUILD_WHEEL_CMAKE": "false", "PDM_CHECK_UPDATE": "false", "NO_COLOR": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    done, total = 0, 1
    with LOG.open("w") as log:
        for line in process.stdout:
            log.write(line)
            if plan := re.search(r"(\d+) to add, (\d+) to update", line):
                total = int(plan[1]) + int(plan[2]) + 1  # the last one is tiny-llm
            elif line.rstrip().endswith("successful"):
                done += 1
                extension.show_progress(min(done, total), total)
    if process.wait():
        errors = re.findall(r"[\w.]*Error: .*", LOG.read_text())
        raise extension.BuildError(
            f"\nThe packages could not be installed ({errors[-1] if errors else 'pdm sync failed'}). "
            f"Is this machine online? The full log: {LOG.relative_to(ROOT)}."
        )
    print(f"Installed in {time.monotonic() - start:.1f} s.", file=sys.stderr)


def set_up(pdm: list[str]) -> None:
    """Set up what is not ready. Fingerprints are taken first, so that edits made meanwhile count as new."""
    extension.check_toolchain()  # first, because it fails fastest
    if not packages_are_ready():
        print("Setting up tiny-llm, once: one to two minutes.", file=sys.stderr)
        wanted = packages_fingerprint()
        install_packages(pdm)
        PACKAGES_STAMP.write_text(wanted)
    if not extension_is_ready():
        wanted = extension_fingerprint()
        extension.build()
        EXTENSION_STAMP.write_text(wanted)


def main(pdm: list[str]) -> int:
    """Set up what is not ready; `pdm` is the command line of the pdm that called."""
    if packages_are_ready() and extension_is_ready():
        return 0
    try:
        with extension.one_at_a_time():
            set_up(pdm)
    except extension.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The next run continues from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: pdm run setup")
    sys.exit(main(sys.argv[1:]))
