"""The learner's native module, built in seconds.

Only units that contain a changed file are compiled, for one instruction set and with little optimisation.
They are linked with the rest of our build in place. Places that are still empty are compiled with our code.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import native
from .tasks import ROOT, all_tasks, messages_by_file

EXTENSIONS = ROOT / "src" / "extensions"
sys.path.insert(0, str(EXTENSIONS))
import build  # noqa: E402

ISA = "scalar"  # exists on every machine and compiles fastest
METAL = re.compile(r"src/[^/]*\.metal|src/metal/.*")
Step = dict[str, str]  # a command with the file that it compiles and its output
RULES = """builddir = {place}
rule compile
  command = $do
  depfile = $out.d
  deps = gcc
rule link
  command = $do
"""


def prepare(folder: Path) -> dict[str, str]:
    """Build the module of `folder` if its sources are not ours; the environment variables of its tests."""
    place = folder / "build"
    changed = mirror(folder, place / "sources")
    package = folder / "extensions" / build.PACKAGE.name
    if any(METAL.fullmatch(name) for name in changed):
        _write_metal(place / "sources", package / "metal")
    steps = all_steps() if changed else []
    units = changed_units(steps, changed)
    if units:
        _compile(steps, units, place)
    module = place / build.MODULE.name if units else build.MODULE
    installed = package / build.MODULE.name
    if not installed.is_file() or _state(installed) != _state(module):
        shutil.copy2(module, installed.with_suffix(".new"))
        os.replace(installed.with_suffix(".new"), installed)
    return {"TINY_LLM_CPU_ISA": ISA} if units else {}


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def mirror(folder: Path, sources: Path) -> set[str]:
    """Copy what changed of the folder's extension to `sources`, with empty places filled in.

    Returns the files that differ from ours.
    """
    tasks = messages_by_file(all_tasks())
    names = set(_files(folder / "extensions"))
    for name in set(_files(sources)) - names:
        (sources / name).unlink()
    for name in names:
        text = (folder / "extensions" / name).read_text()
        if places := tasks.get(f"extensions/{name}"):
            text = native.filled(text, (EXTENSIONS / name).read_text(), places)
        _write(sources / name, text)
    ours = set(_files(EXTENSIONS))
    same = {name for name in names & ours if _text(sources / name) == _text(EXTENSIONS / name)}
    return (names | ours) - same


def _files(extensions: Path) -> Iterator[str]:
    """The source files below a folder like src/extensions, the Python package excepted."""
    for path in extensions.rglob("*"):
        name = path.relative_to(extensions).as_posix()
        if path.is_file() and not name.startswith(build.PACKAGE.name) and "__pycache__" not in name:
            yield name


def _write_metal(sources: Path, texts: Path) -> None:
    """What MLX compiles at run time on a Mac; a library of compiled kernels would be preferred to it."""
    for library in texts.parent.glob("*.metallib"):
        library.unlink()
    for text in texts.glob("*.metal"):
        (source,) = (sources / "src").rglob(text.name)
        subprocess.run([sys.executable, sources / "metal_source.py", source, text], check=True)


def all_steps() -> list[Step]:
    """The commands of our build."""
    steps: list[Step] = json.loads(_ninja("-t", "compdb"))
    return steps


def _link_command(steps: list[Step]) -> str:
    return next(step["command"] for step in steps if Path(step["output"]) == build.MODULE)


def changed_units(steps: list[Step], changed: set[str]) -> list[Step]:
    """The steps that compile a changed file; of the kernels those of ISA."""
    if not changed:
        return []
    linked = set(shlex.split(_link_command(steps)))
    contents = _contents()
    others = re.compile(rf"isa_(?!{ISA}\.).*")
    return [
        step
        for step in steps
        if step["output"] in linked
        and not others.fullmatch(Path(step["file"]).name)
        and contents.get(step["output"], set()) & changed
    ]


def _contents() -> dict[str, set[str]]:
    """The files of ours, below src/extensions, in each object of our build."""
    found: dict[str, set[str]] = {}
    for block in _ninja("-t", "deps").strip().split("\n\n"):
        first, *paths = block.splitlines()
        real = (os.path.normpath(build.BUILD / path.strip()) for path in paths)
        found[first.split(":")[0]] = {
            os.path.relpath(path, EXTENSIONS) for path in real if path.startswith(f"{EXTENSIONS}{os.sep}")
        }
    return found


def _ninja(*arguments: str | Path) -> str:
    command = [build.tool("ninja"), "-C", build.BUILD, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise build.BuildError(f"{result.stdout}{result.stderr}")
    return result.stdout


def _compile(steps: list[Step], units: list[Step], place: Path) -> None:
    """Compile the units from the folder's sources, and link them and the rest to a module in `place`."""
    start = time.monotonic()
    module, sources = place / build.MODULE.name, str(place / "sources")
    link = _link_command(steps).replace(str(build.MODULE), str(module))
    lines = [RULES.format(place=_escaped(place))]
    for step in units:
        source, compiled = Path(step["file"]), object_of(step, place)
        command = step["command"].replace(step["output"], str(compiled))
        if build.BUILD in source.parents:  # CMake's list of files that are compiled together
            together = compiled.with_suffix("")
            _write(together, source.read_text().replace(str(EXTENSIONS), sources))
            command = command.replace(str(source), str(together))
        command = re.sub(r"-O[23]\b", "-O1", command.replace(str(EXTENSIONS), sources))
        link = link.replace(step["output"], str(compiled))
        lines += _edge("compile", compiled, [], command)
    inputs = [word for word in shlex.split(link) if word.endswith((".o", ".a"))]
    lines += _edge("link", module, inputs, link)
    _write(place / "build.ninja", "\n".join(lines) + "\n")
    try:
        said = _ninja("-f", place / "build.ninja")
    except build.BuildError as error:
        raise build.BuildError(_of_learner(str(error), place)) from None
    if "no work to do" not in said:
        seconds = time.monotonic() - start
        print(f"Built the extension of {place.parent.name} in {seconds:.1f} s.", file=sys.stderr)


def object_of(step: Step, place: Path) -> Path:
    """What a step compiles in the learner's folder: names of units repeat, those of our outputs do not."""
    return place / step["output"].replace("/", "-")


def _of_learner(messages: str, place: Path) -> str:
    """The compiler's messages with the paths of the learner's files, without Ninja's lines."""
    lines = [line for line in messages.splitlines() if not re.match(r"ninja: |FAILED: |\[\d+/|.* -MF ", line)]
    text = "\n".join(lines).replace("sources/src/cpu/../", "sources/src/")
    for sources in (place / "sources", os.path.relpath(place / "sources", build.BUILD)):
        text = text.replace(str(sources), str(place.parent / "extensions"))
    return text


def _text(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this text: its time says when it changed."""
    if _text(path) != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _edge(rule: str, output: Path, inputs: Iterable[str], command: str) -> list[str]:
    listed = " ".join(map(_escaped, inputs))
    return [f"build {_escaped(output)}: {rule} {listed}", f"  do = {command.replace('$', '$$')}"]


def _escaped(path: str | Path) -> str:
    return re.sub(r"([$ :])", r"$\1", str(path))
