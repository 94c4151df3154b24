"""Mutation tests of the CPU kernels: `python tools/mutants.py [WORD ...]`.

Each mutant is one changed line in a copy of the tree, which is built for one instruction set; a few test
files must fail. If they all pass, the mutant has survived: the tests do not cover that line. WORDs choose the
mutants whose name contains one of them.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wrong_kernels import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
ISA = "neon" if platform.machine() in ("arm64", "aarch64") else "avx2"
SOURCES = Path("src/extensions/src")
TEST_SECONDS = 300


class Workshop:
    """A copy of the tree with its build folder, in which one mutant after the other is compiled."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.build_folder = folder / "build"
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.dylib")
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, self.tree / name, ignore=ignored)
        for name in ("CMakeLists.txt", "pyproject.toml"):
            shutil.copy2(ROOT / name, self.tree / name)
        self._keep_one_instruction_set()

    def _keep_one_instruction_set(self) -> None:
        """Replace other instruction sets by stubs: they would be compiled for each mutant but never run."""
        for file in (self.tree / SOURCES / "cpu" / "isa").glob("isa_*.cpp"):
            name = file.stem.removeprefix("isa_")
            if name not in (ISA, "scalar"):
                file.write_text(
                    '#include "cpu/interface/kernels.h"\n'
                    "namespace tiny_llm_ext::cpu {\n"
                    f"const Kernels& {name}_kernels() {{ return scalar_kernels(); }}\n"
                    "}\n"
                )

    def replace(self, file: str, old: str, new: str) -> str:
        """Patch a source file; returns its old text."""
        path = self.tree / SOURCES / file
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{SOURCES / file}: {old!r} occurs {text.count(old)} times: update the mutant")
        path.write_text(text.replace(old, new))
        return text

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        unchanged = self.replace(mutant.file, mutant.old, mutant.new)
        yield
        (self.tree / SOURCES / mutant.file).write_text(unchanged)

    def build(self) -> None:
        """Compile what has changed; the module is in the tree afterwards."""
        if not self.build_folder.exists():
            options = ("-G", "Ninja", "-DTINY_LLM_IN_PLACE=ON", f"-DPython_EXECUTABLE={sys.executable}")
            self._run("cmake", "-S", self.tree, "-B", self.build_folder, *options)
        self._run("ninja", "-C", self.build_folder)

    def test(self, files: tuple[str, ...], folder: Path) -> Future[str]:
        """Test a copy of the tree in parallel with the next build; see first_failure."""
        shutil.copytree(self.tree, folder)
        return TESTERS.submit(first_failure, files, folder)

    def _run(self, *command: str | Path) -> None:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        result = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        if result.returncode:
            raise SystemExit(f"{result.stdout}{result.stderr}\nThe build failed; see above.")


TESTERS = ThreadPoolExecutor(max_workers=2)


def first_failure(files: tuple[str, ...], folder: Path) -> str:
    """Run files of tests/kernels up to the first failure, crash or hang; empty if all pass.

    A name without a folder is a file of tests/kernels/attention.
    """
    in_folders = [name if "/" in name else f"attention/{name}" for name in files]
    paths = [f"tests/kernels/{'/test_'.join(name.split('/'))}.py" for name in in_folders]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *paths]
    environment = {**os.environ, "TINY_LLM_CPU_ISA": ISA, "PYTHONDONTWRITEBYTECODE": "1"}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "text": True, "capture_output": True}
    try:
        result = subprocess.run(command, **options, timeout=TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not finished within {TEST_SECONDS} s"
    if result.returncode < 0:
        return f"signal {-result.returncode}"
    failed = re.search(r"^FAILED \S*?test_(.+?)(?: - .*)?$", result.stdout, flags=re.MULTILINE)
    if result.returncode and not failed:
        raise SystemExit(f"{result.stdout}{result.stderr}\npytest could not run; see above.")
    return failed[1] if failed else ""


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        workshop = Workshop(folder)
        for mutant in chosen:
            with workshop.mutated(mutant):
                pass  # reveals an outdated mutant before anything is built
        workshop.build()
        tests = tuple(sorted({test for mutant in chosen for test in mutant.tests}))
        unchanged = workshop.test(tests, folder / "unchanged")
        verdicts = []
        for number, mutant in enumerate(chosen):
            with workshop.mutated(mutant):
                workshop.build()
                verdicts.append(workshop.test(mutant.tests, folder / str(number)))
        if unchanged.result():
            raise SystemExit(f"The tests fail without any mutant: {unchanged.result()}")
        survivors = 0
        for mutant, verdict in zip(chosen, verdicts, strict=True):
            survivors += not verdict.result()
            print(f"{mutant.name}: {verdict.result() or 'SURVIVED'}")
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants caught in {time.monotonic() - start:.0f} s.")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
