"""Runs the Metal attention kernels on an NVIDIA GPU, under the tools of compute-sanitizer.

    python tools/metal_on_cuda.py             build all and run it: needs nvcc, compute-sanitizer and a GPU
    python tools/metal_on_cuda.py --build     build only: needs nvcc

The sources of the kernels are those for a Mac, except for one word; tests/metal/cuda has the shim, the driver
and the translation. Needs no Python package.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src/extensions")]

from metal_source import SOURCES, inlined  # noqa: E402
from tests.metal.cuda.fast_kernels import CAUSAL, FAST_KERNELS, PLAIN, of  # noqa: E402
from tests.metal.cuda.mutants import WATCHED, Watched  # noqa: E402
from tests.metal.cuda.translation import pipeline, registry, translated  # noqa: E402

CUDA = ROOT / "tests/metal/cuda"
READABLE_KERNELS = ["flash_attention_f32_e128"]
HOST = ("driver", "attention", "cases")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# The last line of a tool, with the number of its findings.
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard).*")
FINDING = re.compile(r"=+ ((?:Error|Warning|Invalid|Barrier|Uninitialized|Host API).*)")
# Warnings of nvcc about Metal's attributes and clang's pragmas.
SILENCED = "-diag-suppress=1097,1675"
SECONDS = 60  # for one run


class Part(NamedTuple):
    """Kernels of one source, compiled for one set of features."""

    text: str
    kernels: list[str]
    features: tuple[int, ...] = ()

    def pipelines(self) -> list[str]:
        return [pipeline(kernel, self.features) for kernel in self.kernels]


def compile_with_nvcc(*arguments: str | Path) -> None:
    includes = (f"-I{CUDA / 'shim'}", f"-I{SOURCES}", f"-I{CUDA}")
    flags = ("-std=c++20", "-O2", "-lineinfo", "-Werror=all-warnings", "--expt-relaxed-constexpr")
    result = subprocess.run(
        ["nvcc", *flags, *includes, *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(result.stdout + result.stderr)


def drivers() -> dict[str, list[Part]]:
    """The parts of each driver: one of the kernels, and one of each mutant."""
    readable = inlined((SOURCES / "flash_attention.metal").read_text())
    fast = inlined((SOURCES / "metal/kernels/attention.metal").read_text())
    parts = [Part(readable, READABLE_KERNELS)]
    parts += [Part(fast, kernels, features) for features, kernels in FAST_KERNELS.items()]
    wrong = [wrong_parts(watched, fast if watched.is_fast else readable) for watched in WATCHED]
    return {"right": parts} | {f"wrong{i}": part for i, part in enumerate(wrong)}


def wrong_parts(watched: Watched, text: str) -> list[Part]:
    text = watched.mutant.applied(text)
    if not watched.is_fast:
        return [Part(text, READABLE_KERNELS)]
    kernels = of("f32", watched.cases.split()[0])
    return [Part(text, kernels, PLAIN), Part(text, kernels, CAUSAL)]


def build(folder: Path, arch: str) -> list[Path]:
    """Build the drivers: of the kernels, then of each mutant."""
    folder.mkdir(parents=True, exist_ok=True)
    found = drivers()
    objects: dict[str, list[Path]] = {name: [folder / f"{host}.o" for host in HOST] for name in found}
    jobs = [(CUDA / f"{host}.cpp", folder / f"{host}.o") for host in HOST]
    for name, parts in found.items():
        texts = [translated(*part) for part in parts]
        texts.append(registry([pipeline for part in parts for pipeline in part.pipelines()]))
        for i, text in enumerate(texts):
            source = folder / f"{name}-{i}.cu"
            source.write_text(text)
            jobs.append((source, source.with_suffix(".o")))
            objects[name].append(source.with_suffix(".o"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = [
            pool.submit(compile_with_nvcc, f"-arch={arch}", SILENCED, "-c", source, "-o", output)
            for source, output in jobs
        ]
        for job in compiled:
            job.result()
        linked = [
            pool.submit(compile_with_nvcc, *paths, "-o", folder / name) for name, paths in objects.items()
        ]
        for job in linked:
            job.result()
    return [folder / name for name in found]


def output_of(*command: str | Path) -> str:
    """The output of a command, also if it fails."""
    try:
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as expired:
        return f"{(expired.stdout or b'').decode()}\nnot finished after {SECONDS} seconds"
    except FileNotFoundError:
        return f"{command[0]} is missing"
    return result.stdout.decode()


class Verdict(NamedTuple):
    findings: int | None  # None: the tool printed no summary
    text: str  # the first finding, or the last lines

    def __str__(self) -> str:
        number = "no summary" if self.findings is None else f"{self.findings} findings"
        return f"{number}; {self.text}" if self.text else number


def watch(tool: str, driver: Path, *arguments: str) -> Verdict:
    """Runs a driver under one tool of compute-sanitizer."""
    if tool == "initcheck":
        arguments = ("--unset", *arguments)
    command = ["compute-sanitizer", "--tool", tool]
    if tool == "racecheck":
        command += ["--racecheck-report", "all", "--print-level", "info"]
    text = output_of(*command, driver, *arguments)
    found = FINDING.search(text)
    if (summary := SUMMARY.search(text)) is None:
        return Verdict(None, " / ".join(text.strip().splitlines()[-3:]))
    return Verdict(int(summary[1] or summary[2]), found[1] if found else "")


def first_line(*command: str) -> str:
    return (output_of(*command).strip().splitlines() or ["?"])[0]


def run(built: list[Path]) -> bool:
    """Print the verdict of the tools on each driver; returns whether all are as expected."""
    right, *wrong = built
    print(first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"))
    print(output_of("nvcc", "--version").strip().splitlines()[-1])
    print(output_of("compute-sanitizer", "--version").strip().splitlines()[-1])
    text = output_of(right)
    print(f"\nResults, without a tool\n{text}")
    good = text.rstrip().endswith(" 0 wrong")
    print("The kernels under the tools: no findings are expected")
    for tool in TOOLS:
        started = time.monotonic()
        verdict = watch(tool, right)
        good &= verdict.findings == 0
        print(f"  {tool:10} {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    print("\nMutants: each must be found")
    for watched, driver in zip(WATCHED, wrong, strict=True):
        verdict = watch(watched.tool, driver, watched.cases)
        good &= bool(verdict.findings)
        print(f"  {watched.tool:10} {watched.mutant.name}: {verdict}", flush=True)
    print("\nall as expected" if good else "\nNOT as expected")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", action="store_true", help="only build")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/metal-on-cuda")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    built = build(options.folder, options.arch)
    return 0 if options.build or run(built) else 1


if __name__ == "__main__":
    sys.exit(main())
