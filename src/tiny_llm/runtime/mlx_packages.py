"""The packages with MLX's library, and why it cannot be imported. Nothing here imports MLX."""

import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

CPU_ONLY = "mlx-cpu"
LIBRARIES = (CPU_ONLY, "mlx-metal", "mlx-cuda-12", "mlx-cuda-13")
DRIVER = "libcuda.so.1"
PROGRAMS = Path(__file__).resolve().parents[3]  # in the source tree, the folder of main.py and its like


def installed_libraries() -> list[str]:
    """The installed ones of LIBRARIES. All have the same files, so there should be one."""
    found = []
    for package in LIBRARIES:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        found.append(package)
    return found


def explain_import_error(text: str, packages: Sequence[str]) -> str | None:
    """A sentence for an ImportError of MLX's build for CUDA; None for another one."""
    cuda = [package for package in packages if package.startswith("mlx-cuda")]
    if not cuda:
        return None
    if missing := re.match(r"(lib\S+): cannot open shared object file", text):
        library = missing[1]
        what = "NVIDIA driver" if library == DRIVER else "library of NVIDIA's packages"
        reason = f"no {what} was found: {library} cannot be loaded"
    elif failed := re.match(r"cu\w+\(.*\) failed: (.+)", text):
        reason = f"no usable GPU was found: {failed[1]}"
    else:
        return None
    return (
        f"MLX's build for CUDA is installed ({cuda[0]}), but {reason}. For the CPU: `pdm run setup "
        f"--cpu` in the source tree, elsewhere uninstall {cuda[0]} and install mlx[cpu]"
    )


def refuse(error: ImportError) -> NoReturn:
    """Raise the error with a sentence where there is one; our programs print it and end."""
    sentence = explain_import_error(str(error), installed_libraries())
    if sentence is None:
        raise error
    if is_our_program(sys.argv[0], sys.orig_argv):
        sys.exit(f"tiny-llm: {sentence}")
    raise ImportError(sentence, name="mlx.core") from error


def is_our_program(program: str, command: Sequence[str]) -> bool:
    """Whether this process is `tiny-llm`, `python -m tiny_llm`, or main.py and its like in the source tree.

    `program` is sys.argv[0], "-m" while Python looks for the module; `command` is sys.orig_argv.
    """
    if program == "-m":
        return "-m" in command and command[command.index("-m") + 1] == "tiny_llm"
    path = Path(program).resolve()
    return path.is_file() and (path.name == "tiny-llm" or path.parent == PROGRAMS)
