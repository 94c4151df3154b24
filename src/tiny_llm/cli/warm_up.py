"""`tiny-llm warm-up`: let MLX compile the GPU kernels of a model before its first answer."""

import argparse
import time
from typing import Any

from ..generation.defaults import prefill_chunk
from ..loading.progress import Progress
from ..runtime.kernel_cache import count_kernels, kernel_cache
from ..sampling.params import Sampling
from . import arguments
from .backends import Backend, settings_line
from .build_backend import build_backend
from .output_files import print_json
from .progress import ProgressBar

DESCRIPTION = """Runs a short prompt, a prompt of more than one chunk, and a few decode steps. On CUDA, MLX
compiles its kernels meanwhile and keeps them in a folder, which later processes read. On Metal and on the CPU
there is no such folder: the command runs the model and says so."""
SENTENCE = "The quick brown fox jumps over the lazy dog. "
STEPS = 8  # new tokens after each prompt


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_json(parser)
    arguments.add_model(parser)
    arguments.add_solution(parser)
    arguments.add_machine(parser)
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Run the model, then print how long it took and what was compiled."""
    with ProgressBar() as progress:
        backend = build_backend(options, progress)
        folder = kernel_cache()
        before = 0 if folder is None else count_kernels(folder)
        start = time.monotonic()
        run_prompts(backend, progress)
        seconds = time.monotonic() - start
    kernels = None if folder is None else count_kernels(folder)
    report = {
        **backend.description,
        "seconds": seconds,
        "compiled": None if kernels is None else kernels - before,
        "kernels": kernels,
        "folder": None if folder is None else str(folder),
    }
    print_json(report, indent=2) if options.json else print(as_text(report))
    return 0


def run_prompts(backend: Backend, progress: Progress) -> None:
    """Answer a short prompt and a long one with a few tokens each."""
    for prompt in (SENTENCE, long_prompt(backend)):
        for _ in backend.generate(prompt, Sampling(max_tokens=STEPS), progress):
            pass


def long_prompt(backend: Backend) -> str:
    """A text of a full chunk and a partial one, or as much of it as fits into the context."""
    length = backend.count_tokens(SENTENCE)
    return SENTENCE * max(1, min(prefill_chunk() // length + 1, (backend.context - STEPS) // length))


def as_text(report: dict[str, Any]) -> str:
    return f"{settings_line(report)}: {report['seconds']:.1f} s\n{cache_line(report)}"


def cache_line(report: dict[str, Any]) -> str:
    """What was kept for later processes."""
    if report["folder"] is None:
        return "MLX keeps no compiled kernels for this device, so later processes start no sooner."
    if not report["kernels"]:
        return f"No kernel was kept: can {report['folder']} be written?"
    return f"{report['compiled']} kernel modules compiled, {report['kernels']} in {report['folder']}"
