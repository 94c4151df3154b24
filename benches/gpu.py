"""`pdm bench gpu`: whole models on a GPU, tiny_llm and mlx-lm on the same weights, in turn.

A ratio above 1 is in favour of tiny_llm. It is the median over pairs of runs, because machines drift.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx

from benches.contestants.gpu_models import (
    embedded_model,
    our_batch,
    our_tokens,
    random_models,
    their_batch,
    their_tokens,
)
from benches.harness import machine
from benches.names import MLX_LM, TINY_LLM
from benches.report.gpu import measured_table
from benches.report.tables import Record
from tiny_llm import LLM
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.exit_codes import FAILED, Failure
from tiny_llm.cli.mlx_lm_backend import check_mlx_lm
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm.runtime.gpu import gpu_facts

MODELS = ("qwen2-0.5b", "qwen2-7b")
WEIGHTS = {"4-bit": 4, "bf16": None}
PROMPTS = (128, 512, 4096)  # tokens
SEQUENCES = 16
ANSWER = 96  # tokens
DECODE_TARGET = {"qwen2-0.5b": 1.2, "qwen2-7b": 1.0}
MEMORY_TARGET = 1 / 1.05
EMBEDDED_TARGET = 400  # tokens a second
FIRST_ANSWER_TARGET = 10  # seconds
Run = Callable[[], tuple[float, ...]]


def model_rows(shortcut: str, weights: str, repeats: int) -> Iterator[Record]:
    models = random_models(shortcut, WEIGHTS[weights])
    for length in PROMPTS:
        prompt = prompt_of(length)
        pairs = in_turn(
            lambda prompt=prompt: timed(our_tokens(models.ours, prompt, ANSWER)),
            lambda prompt=prompt: timed(their_tokens(models.theirs, prompt, ANSWER)),
            repeats,
        )
        name = f"{shortcut}, {weights}"
        yield row(f"{name}, prompt of {length}", "ms", [(1e3 * a[0], 1e3 * b[0]) for a, b in pairs], 1.0)
        rates = [(a[1], b[1]) for a, b in pairs]
        yield row(f"{name}, decode after {length}", "tok/s", rates, DECODE_TARGET[shortcut])
    prompts = [prompt_of(128 + 4 * i, seed=i) for i in range(SEQUENCES)]
    pairs = in_turn(
        lambda: timed(our_batch(models.ours, prompts, ANSWER)),
        lambda: timed(their_batch(models.theirs, prompts, ANSWER)),
        repeats,
    )
    rates = [(SEQUENCES * a[1], SEQUENCES * b[1]) for a, b in pairs]
    yield row(f"{shortcut}, {weights}, decode of {SEQUENCES} sequences", "tok/s", rates, 1.0)


def memory_rows(shortcut: str, weights: str) -> Iterator[Record]:
    """Each contestant in a process of its own."""
    for length in (PROMPTS[0], PROMPTS[-1]):
        measured = partial(in_process, "peak_memory", shortcut, WEIGHTS[weights], length)
        work = f"{shortcut}, {weights}, peak memory, prompt of {length}"
        yield row(work, "MB", [(measured(TINY_LLM), measured(MLX_LM))], MEMORY_TARGET)


def embedded_row(repeats: int) -> Record:
    model, prompt = embedded_model(), prompt_of(64, vocabulary=256)
    rates = [timed(our_tokens(model, prompt, ANSWER))[1] for _ in range(repeats + 1)][1:]
    rate = median(rates)
    return {
        "work": "embedded model, decode",
        "unit": "tok/s",
        TINY_LLM: rate,
        "target": f">= {EMBEDDED_TARGET} tok/s",
        "met": rate >= EMBEDDED_TARGET,
    }


def first_answer_row() -> Record:
    """A process that finds no compiled kernels: seconds to make a model, each in its way, and 16 tokens."""
    seconds = {name: in_process("first_answer", "qwen2-0.5b", 4, 24, name) for name in (TINY_LLM, MLX_LM)}
    return {
        "work": "first answer, nothing compiled",
        "unit": "s",
        **seconds,
        "target": f"<= {FIRST_ANSWER_TARGET} s",
        "met": seconds[TINY_LLM] <= FIRST_ANSWER_TARGET,
    }


def row(work: str, unit: str, pairs: Sequence[tuple[float, float]], target: float) -> Record:
    ratio = median(a / b if unit == "tok/s" else b / a for a, b in pairs)
    ours, theirs = (median(values) for values in zip(*pairs, strict=True))
    return {
        "work": work,
        "unit": unit,
        TINY_LLM: ours,
        MLX_LM: theirs,
        "ratio": ratio,
        "target": f">= {target:.2f}x",
        "met": ratio >= target,
    }


def in_turn(ours: Run, theirs: Run, repeats: int) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Pairs of runs after one to warm up."""
    return [(ours(), theirs()) for _ in range(repeats + 1)][1:]


def timed(tokens: Iterator[int]) -> tuple[float, float]:
    """Seconds to the first item, and items a second after it."""
    begin = time.perf_counter()
    times = [time.perf_counter() for _ in tokens]
    return times[0] - begin, (len(times) - 1) / (times[-1] - times[0])


def prompt_of(length: int, seed: int = 0, vocabulary: int = 90000) -> list[int]:
    ids: Any = mx.random.randint(0, vocabulary, (length,), key=mx.random.key(seed)).tolist()
    return ids


def answer(shortcut: str, bits: int | None, length: int, contestant: str, tokens: int) -> None:
    models = random_models(shortcut, bits)
    mx.clear_cache()
    mx.reset_peak_memory()
    run, model = (our_tokens, models.ours) if contestant == TINY_LLM else (their_tokens, models.theirs)
    for _ in run(model, prompt_of(length), tokens):
        pass


def peak_memory(shortcut: str, bits: int | None, length: int, contestant: str) -> float:
    """MB at the peak of a prompt and 32 tokens."""
    answer(shortcut, bits, length, contestant, 32)
    return mx.get_peak_memory() / 1e6


def first_answer(shortcut: str, bits: int | None, length: int, contestant: str) -> float:
    """Seconds until 16 tokens were made. tiny_llm loads the model itself, and mlx-lm is not imported."""
    begin = time.perf_counter()
    if contestant == TINY_LLM:
        LLM(f"random:{shortcut}").generate("What is FlashAttention? " * (length // 8), max_tokens=16)
    else:
        answer(shortcut, bits, length, contestant, 16)
    return time.perf_counter() - begin


def in_process(function: str, *arguments: Any) -> float:
    """The result of a function of this module in a new process; `first_answer` finds no compiled kernels."""
    code = f"import benches.gpu as gpu; print(gpu.{function}(*{arguments!r}))"
    with tempfile.TemporaryDirectory() as folder:
        kernels = {"MLX_PTX_CACHE_DIR": folder} if function == "first_answer" else {}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **kernels}, stdout=subprocess.PIPE, text=True
        )
    if done.returncode:
        raise Failure(f"{function}{arguments}: the process ended with {done.returncode}")
    return float(done.stdout.split()[-1])


def rows(options: argparse.Namespace) -> Iterator[Record]:
    if "start" in options.rows:
        yield first_answer_row()
    if "embedded" in options.rows:
        yield embedded_row(options.repeats)
    for shortcut in options.models:
        for weights in WEIGHTS:
            if "models" in options.rows:
                yield from model_rows(shortcut, weights, options.repeats)
            if "memory" in options.rows:
                yield from memory_rows(shortcut, weights)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pdm bench gpu", description=__doc__)
    groups = ("start", "embedded", "models", "memory")
    parser.add_argument("--rows", nargs="+", choices=groups, default=groups, help="default: all")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="default: all")
    parser.add_argument("--repeats", type=integer(1), default=7, help="pairs of runs (default: 7)")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record")
    options = parser.parse_args(argv)
    if not mx.is_available(mx.gpu):
        parser.error("MLX finds no GPU on this machine")
    record: Record = {"benchmark": "gpu", **machine.describe(), "gpu": gpu_facts(), "rows": []}
    return collect(parser.prog, record, lambda: rows(options), measured_table, options.json)


def collect(
    program: str,
    record: Record,
    rows: Callable[[], Iterator[Record]],
    show: Callable[[Record], str],
    file: Path | None,
) -> int:
    """Add rows to a record, which is written after each, for interrupted runs; the exit code."""
    try:
        if mx.is_available(mx.gpu):
            check_mlx_lm()
        for found in rows():
            record["rows"].append(found)
            print(show(record).splitlines()[-1], file=sys.stderr, flush=True)
            if file is not None:
                write_whole(file, json.dumps(record, indent=1) + "\n")
    except Failure as failure:
        print(f"{program}: {failure}", file=sys.stderr)
        return FAILED
    print(show(record))
    return 0
