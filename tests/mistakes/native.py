"""For mistakes in CPU kernels: their unit is compiled again and linked with the rest of the build."""

import json
import re
import subprocess
from pathlib import Path

import build

EXTENSIONS = Path("src", "extensions")


def rebuild(tree: Path, isa: str) -> None:
    """Build the native module of `tree` with its own kernels of this instruction set."""
    objects = tree / "objects"
    objects.mkdir(exist_ok=True)
    unit = f"isa_{isa}.cpp"
    compiled = objects / "kernels.o"
    steps = _steps()
    compile_step = next(step for step in steps if step["file"].endswith(unit))
    link_step = next(step for step in steps if Path(step["output"]).name.startswith("_ext."))
    _run(_in(tree, compile_step["command"]).replace(compile_step["output"], str(compiled)))
    module = tree / EXTENSIONS / "tiny_llm_ext" / Path(link_step["output"]).name
    module.unlink(missing_ok=True)
    _run(_in(tree, link_step["command"]).replace(compile_step["output"], str(compiled)))
    assert module.is_file()


def _steps() -> list[dict[str, str]]:
    assert (build.BUILD / "build.ninja").is_file(), (
        f"{build.BUILD}: got no build, expected one: run `pdm run build-ext`"
    )
    answer = subprocess.run(
        [build.tool("ninja"), "-C", build.BUILD, "-t", "compdb"], capture_output=True, text=True, check=True
    )
    steps: list[dict[str, str]] = json.loads(answer.stdout)
    return steps


def _in(tree: Path, command: str) -> str:
    """The command for the sources in `tree`, with -O1 to compile faster."""
    return re.sub(r"-O[23]\b", "-O1", command.replace(str(build.ROOT / EXTENSIONS), str(tree / EXTENSIONS)))


def _run(command: str) -> None:
    result = subprocess.run(command, shell=True, cwd=build.BUILD, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
