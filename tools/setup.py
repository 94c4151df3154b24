"""The first step of `pdm run main` and `pdm run test`: install the packages and build the extension, once.

Two fingerprints record what was set up. While they match, this takes a few milliseconds and no network.
All messages go to standard error, to keep them out of the output of the command that follows.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src" / "extensions"), str(ROOT / "tools")]
import mlx_package  # noqa: E402

import build as extension  # noqa: E402

SITE = sysconfig.get_path("purelib")
PACKAGES_STAMP = Path(sys.prefix) / "tiny_llm_packages"
MLX_CHOICE = Path(sys.prefix) / "tiny_llm_mlx"  # the build of MLX that `--cuda` or `--cpu` chose
EXTENSION_STAMP = extension.BUILD / "fingerprint"
LOG = ROOT / "build" / "packages.log"
DESCRIPTION = "Installs the packages and builds the extension, where they are missing or have changed."


def fingerprint(paths: list[Path], *words: str) -> str:
    """A hash of the files, their paths, this Python and the words."""
    digest = hashlib.sha256(" ".join([str(ROOT), sys.version, *words]).encode())
    for path in sorted(paths):
        digest.update(str(path).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def packages_fingerprint(mlx: str) -> str:
    """Of pdm.lock and a build of MLX. Names of modules count, because an editable install lists them."""
    packages = ("tiny_llm", "tiny_llm_tools")
    modules = sorted(
        str(path.relative_to(ROOT)) for name in packages for path in (ROOT / "src" / name).rglob("*.py")
    )
    return fingerprint([ROOT / "pyproject.toml", ROOT / "pdm.lock"], mlx, *modules)


def extension_fingerprint() -> str:
    native = ROOT / "src" / "extensions"
    sources = [path for path in native.rglob("*") if path.is_file() and extension.PACKAGE not in path.parents]
    sources = [path for path in sources if path.suffix != ".pyc"]
    asked = os.environ.get("TINY_LLM_BUILD_ISAS", "")
    return fingerprint([ROOT / "CMakeLists.txt", ROOT / "pdm.lock", *sources], asked)


def recorded(stamp: Path) -> str:
    return stamp.read_text() if stamp.is_file() else ""


def chosen_mlx() -> str:
    """The build of MLX that was chosen; empty for the one in pdm.lock."""
    return recorded(MLX_CHOICE)


def packages_are_ready() -> bool:
    return recorded(PACKAGES_STAMP) == packages_fingerprint(chosen_mlx())


def extension_is_ready() -> bool:
    return (
        extension.MODULE.is_file()
        and recorded(EXTENSION_STAMP) == extension_fingerprint()
        and extension.is_for_this_machine()
    )


def check_owner() -> None:
    """Raise BuildError where another tree runs in this environment: it would lose its editable tiny-llm."""
    if ROOT in Path(sys.prefix).parents:  # a folder may have been copied with its environment
        return
    for package in metadata.distributions(name="tiny-llm", path=[SITE]):
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        owner = Path(unquote(urlsplit(origin.get("url", "")).path))
        if origin.get("dir_info", {}).get("editable") and owner.is_dir() and not owner.samefile(ROOT):
            raise extension.BuildError(
                f"The environment {sys.prefix} belongs to {owner}, whose tiny-llm it runs: remove the file "
                f".pdm-python of {ROOT}, activate no environment or another one, and repeat the command."
            )


def install_packages(pdm: list[str], *groups: str) -> None:
    """Install the packages of pdm.lock that `groups` selects: options of `pdm sync`.

    tiny-llm itself, unless they leave it out, becomes an editable package, without being compiled.
    """
    start = time.monotonic()
    print("Installing the packages of pdm.lock ...", file=sys.stderr, flush=True)
    process = subprocess.Popen(
        [*pdm, "sync", *groups, "--no-isolation", "--project", ROOT],
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


def choose_mlx(package: str, wanted: str) -> None:
    """Make `package` the only build of MLX, and record it and the fingerprint `wanted`: set-ups keep it."""
    before = mlx_package.installed()
    stamp = recorded(PACKAGES_STAMP)
    PACKAGES_STAMP.unlink(missing_ok=True)  # a set-up that is stopped here starts again
    try:
        version = mlx_package.required_version((ROOT / "pyproject.toml").read_text())
        if before == {package: version}:
            print(f"{package} {version} is installed, nothing is replaced.", file=sys.stderr)
        else:
            replace_mlx(package, version)
    except extension.BuildError:
        if mlx_package.installed() == before:
            PACKAGES_STAMP.write_text(stamp)
        raise
    MLX_CHOICE.write_text(package)
    PACKAGES_STAMP.write_text(wanted)


def replace_mlx(package: str, version: str) -> None:
    size = ""
    if package != mlx_package.CPU and package not in mlx_package.installed():
        size = " with NVIDIA's libraries (2 GB to download, 3 GB on disk)"
    print(f"Installing {package} {version}{size} ...", file=sys.stderr, flush=True)
    replaced = mlx_package.replace_by(package, version)
    names = " and ".join(f"{name} {number}" for name, number in replaced.items()) or "nothing"
    sentence = f"Installed {package} {version}, replaced {names}."
    if package == mlx_package.CPU:
        sentence += " NVIDIA's libraries stay: `pip list` shows them as nvidia-*."
    else:
        sentence += " `pdm run setup --cpu` goes back."
    print(sentence, file=sys.stderr)


def set_up(pdm: list[str], mlx: str = "") -> None:
    """Set up what is not ready, with the build `mlx` if it is given, else with the one chosen earlier.

    Fingerprints are taken first, so that edits made meanwhile count as new.
    """
    extension.check_toolchain()  # first, because it fails fastest
    new_choice, mlx = mlx, mlx or chosen_mlx()
    wanted = packages_fingerprint(mlx)
    ready = packages_are_ready()
    if not ready:
        print("Setting up tiny-llm, once: two to four minutes on two cores.", file=sys.stderr)
        install_packages(pdm, "--dev")  # with mlx-cpu, also where another build was chosen
    if new_choice or (mlx and not ready):
        choose_mlx(mlx, wanted)
    elif not ready:
        PACKAGES_STAMP.write_text(wanted)
    if not extension_is_ready():
        wanted = extension_fingerprint()
        extension.build()
        EXTENSION_STAMP.write_text(wanted)


def main(pdm: list[str], build: str | None = None, *, force: bool = False) -> int:
    """Set up what is not ready; `pdm` is the command line of the pdm that called, `build` "cpu" or "cuda"."""
    if build is None and packages_are_ready() and extension_is_ready():
        return 0
    try:
        check_owner()
        mlx = mlx_of(build, force=force)
        with extension.one_at_a_time():
            set_up(pdm, mlx)
    except extension.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The next run continues from here.", file=sys.stderr)
        return 130
    return 0


def mlx_of(build: str | None, *, force: bool) -> str:
    """The package of MLX for a flag; refuses what cannot run on this machine."""
    system, machine = platform.system(), platform.machine()
    if build == "cuda":
        return mlx_package.cuda_package(system, machine, mlx_package.find_driver(), force=force)
    if build == "cpu" and system != "Linux":
        raise extension.BuildError(f"--cpu: MLX has one build for {system}, with both CPU and GPU.")
    return "" if build is None else mlx_package.CPU


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pdm run setup", description=DESCRIPTION, allow_abbrev=False)
    group = parser.add_mutually_exclusive_group()
    for build, what in (("cuda", "CUDA, for NVIDIA GPUs"), ("cpu", "the CPU")):
        group.add_argument(
            f"--{build}", dest="build", action="store_const", const=build,
            help=f"use MLX's build for {what}; later set-ups keep it",
        )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="with --cuda: also where no GPU is found")
    parser.add_argument("--pdm", nargs=argparse.REMAINDER, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.force and options.build != "cuda":
        parser.error("--force: has no effect without --cuda")
    return options


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    sys.exit(main(options.pdm, options.build, force=options.force))
