"""Runs the readable Metal kernel on an NVIDIA GPU, under the tools of compute-sanitizer.

    python tools/metal_on_cuda.py             build all and run it: needs nvcc, compute-sanitizer and a GPU
    python tools/metal_on_cuda.py --build     build only: needs nvcc

The text of the kernel is unchanged; tests/metal/cuda has the shim and the driver. Needs no Python package.
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
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src/extensions")]

from metal.cuda.mutants import WATCHED  # noqa: E402
from metal.cuda.translation import translated  # noqa: E402

from metal_source import SOURCES, inlined  # noqa: E402

CUDA = ROOT / "tests/metal/cuda"
KERNEL = "flash_attention_f32_e128"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# What a tool says at its end, with the number of its findings.
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard).*")
FINDING = re.compile(r"=+ ((?:Error|Warning|Invalid|Barrier|Uninitialized|Host API).*)")
MUTANT_CASES = "L=33 S=65"  # complete and incomplete tiles of rows and of keys
SECONDS = 60  # for one run


def compile_with_nvcc(*arguments: str | Path) -> None:
    includes = (f"-I{CUDA / 'shim'}", f"-I{SOURCES}", f"-I{CUDA}")
    command = ("nvcc", "-std=c++20", "-O2", "-lineinfo", "-Werror=all-warnings", *includes)
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stdout + result.stderr)


def compile_kernel(text: str, folder: Path, name: str, arch: str) -> None:
    """An object of the kernel, for the driver to be linked with; from its unchanged text."""
    source = folder / f"{name}.cu"
    source.write_text(translated(text, [KERNEL]))
    # nvcc does not know Metal's attributes, and says so.
    compile_with_nvcc(f"-arch={arch}", "-diag-suppress=1097", "-c", source, "-o", folder / f"{name}.o")


def build(folder: Path, arch: str) -> list[Path]:
    """Drivers: of the kernel, then of each wrong one."""
    folder.mkdir(parents=True, exist_ok=True)
    text = inlined((SOURCES / "flash_attention.metal").read_text())
    texts = {"right": text}
    texts |= {f"wrong{i}": watched.mutant.applied(text) for i, watched in enumerate(WATCHED)}
    objects = {name: folder / f"{name}.o" for name in ("driver", "attention", "cases")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_kernel, text, folder, name, arch) for name, text in texts.items()]
        jobs += [
            pool.submit(compile_with_nvcc, "-c", CUDA / f"{name}.cpp", "-o", path)
            for name, path in objects.items()
        ]
        for job in jobs:
            job.result()
        for name in texts:
            output = folder / name
            jobs.append(pool.submit(compile_with_nvcc, *objects.values(), folder / f"{name}.o", "-o", output))
        for job in jobs:
            job.result()
    return [folder / name for name in texts]


def output_of(*command: str | Path) -> str:
    """What a command prints, whatever it returns."""
    try:
        result = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as expired:
        return f"{(expired.stdout or b'').decode()}\nno end after {SECONDS} seconds"
    except FileNotFoundError:
        return f"{command[0]} is not there"
    return result.stdout.decode()


class Verdict(NamedTuple):
    findings: int | None  # None: the tool did not get to its summary
    text: str  # what it found first, or its last words

    def __str__(self) -> str:
        number = "no answer" if self.findings is None else f"{self.findings} findings"
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


def run(drivers: list[Path]) -> bool:
    """Prints what the tools say about each driver; whether all is as it should be."""
    right, *wrong = drivers
    print(first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"))
    print(output_of("nvcc", "--version").strip().splitlines()[-1])
    print(output_of("compute-sanitizer", "--version").strip().splitlines()[-1])
    text = output_of(right)
    print(f"\nNumbers, without a tool\n{text}")
    good = text.rstrip().endswith(" 0 wrong")
    print("The kernel under the tools: no findings are right")
    for tool in TOOLS:
        started = time.monotonic()
        verdict = watch(tool, right)
        good &= verdict.findings == 0
        print(f"  {tool:10} {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    print("\nWrong kernels: each has to be found")
    for watched, driver in zip(WATCHED, wrong, strict=True):
        verdict = watch(watched.tool, driver, MUTANT_CASES)
        good &= bool(verdict.findings)
        print(f"  {watched.tool:10} {watched.mutant.name}: {verdict}", flush=True)
    print("\nall as it should be" if good else "\nNOT as it should be")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", action="store_true", help="only build")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/metal-on-cuda")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    drivers = build(options.folder, options.arch)
    return 0 if options.build or run(drivers) else 1


if __name__ == "__main__":
    sys.exit(main())
