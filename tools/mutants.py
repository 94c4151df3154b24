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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ISA = "neon" if platform.machine() in ("arm64", "aarch64") else "avx2"
SOURCES = Path("src/extensions/src")
TEST_SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    """A wrong kernel: `old`, which occurs once in `file`, becomes `new`; one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "only the first 32 keys are read",
        "cpu/attention/forward-inl.h",
        "if (last > task.key_end - 1) last = task.key_end - 1;",
        "if (last > task.key_end - 1) last = task.key_end - 1;\n  if (last > 31) last = 31;",
        ("lengths",),
    ),
    Mutant(
        "L == S is assumed",
        "cpu/attention/query_tile-inl.h",
        "int64_t position = i + task.n_k - task.n_q;",
        "int64_t position = i;",
        ("lengths",),
    ),
    Mutant(
        "a query head reads another key/value head",
        "cpu/attention/forward_pass.cpp",
        "task.k = k_.at(sequence.entry, kv_head, sequence.k_begin);",
        "task.k = k_.at(sequence.entry, problem_.Hkv - 1 - kv_head, sequence.k_begin);",
        ("grouped_heads",),
    ),
    Mutant(
        "the guard of a maximum of -inf is missing",
        "cpu/attention/online_softmax-inl.h",
        "F base = select(equal(m, set1(-INFINITY)), zero(), m);",
        "F base = m;",
        ("hidden_rows",),
    ),
    Mutant(
        "the output is not rescaled",
        "cpu/attention/online_softmax-inl.h",
        "F alpha = exp2(exponent_between(old, base));",
        "F alpha = set1(1);",
        ("running_maximum",),
    ),
    Mutant(
        "a tile too few at the causal edge",
        "attention/tiles.cpp",
        "last_key(last_row + shift, n_k, right) + 1}",
        "last_key(last_row + shift, n_k, right)}",
        ("lengths",),
    ),
    Mutant(
        "a tile too few at the left edge of a window",
        "attention/tiles.cpp",
        "first_key(first_row + shift, left)",
        "first_key(first_row + shift, left - 1)",
        ("window",),
    ),
    Mutant(
        "hidden tiles are not skipped",
        "cpu/attention/forward-inl.h",
        "if (end < begin || tile[t].any_first >= begin + keys.keys) continue;",
        "if (end < begin) end = begin;",
        ("tile_counts",),
    ),
    Mutant(
        "the bound of the last tile is missing",
        "cpu/attention/forward-inl.h",
        "(int)(end - begin < keys.keys ? end - begin + 1 : keys.keys)",
        "Operands::kKeyTile",
        ("layouts", "nan"),
    ),
    Mutant(
        "the start of a sequence is dropped from an address",
        "cpu/attention/forward_pass.cpp",
        "task.v = v_.at(sequence.entry, kv_head, sequence.k_begin);",
        "task.v = v_.at(sequence.entry, kv_head, 0);",
        ("ragged_batches",),
    ),
    Mutant(
        "the mask is read from the first slot, not the first key",
        "cpu/attention/forward_pass.cpp",
        "task.mask = mask_.view(sequence.entry, batch_, head, sequence.k_begin);",
        "task.mask = mask_.view(sequence.entry, batch_, head, 0);",
        ("masks",),
    ),
    Mutant(
        "all heads of a group read one head of the mask",
        "cpu/attention/mask-inl.h",
        "return (flat % task.gqa_heads) * mask.head_stride + (flat / task.gqa_heads) * mask.row_stride +",
        "return (flat / task.gqa_heads) * mask.row_stride +",
        ("masks",),
    ),
    Mutant(
        "hidden scores are added to, not selected",
        "cpu/attention/online_softmax-inl.h",
        "select(seen, load(s + key * stride), set1(-INFINITY))",
        "add(load(s + key * stride), select(seen, zero(), set1(-INFINITY)))",
        ("nan",),
    ),
    Mutant(
        "a row of NaN counts as empty",
        "cpu/attention/softmax_state.h",
        "if (l == 0) return -INFINITY;",
        "if (!(l > 0)) return -INFINITY;",
        ("nan",),
    ),
    Mutant(
        "the sink is dropped where chunks of keys are merged",
        "cpu/attention/merge.cpp",
        "const float factor = sink ? add_sink(*sink, &m, &l) : 1;",
        "const float factor = 1;",
        ("softcap_and_sinks",),
    ),
    Mutant(
        "chunks of keys are merged without their weights",
        "cpu/attention/merge.cpp",
        "l += weight * partial[E + 1];",
        "l += partial[E + 1];",
        ("lengths",),
    ),
    Mutant(
        "a window has a key too many",
        "attention/arguments/options.cpp",
        "std::pair{*keys - 1, int64_t{0}}",
        "std::pair{*keys, int64_t{0}}",
        ("window",),
    ),
    Mutant(
        "lengths beyond the end are accepted",
        "attention/lengths.cpp",
        "if (length < 0 || length > max) {",
        "if (length < 0) {",
        ("bad_input", "late_lengths"),
    ),
    Mutant(
        "a failed evaluation does not fill its results with NaN",
        "cpu/runtime/dispatch.cpp",
        "for (mx::array& result : results) fill_with_nan(result);",
        "",
        ("late_lengths",),
    ),
)


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
    """Run files of tests/kernels/attention up to the first failure, crash or hang; empty if all pass."""
    paths = [f"tests/kernels/attention/test_{name}.py" for name in files]
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
