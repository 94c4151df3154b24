"""`pdm bench ranks`: a model on 1, 2 and 4 ranks of this machine, beside mlx-lm's sharded models.

Each group is started anew. With a GPU for each rank, mlx-lm's model runs after ours. On a CPU the ranks share
the cores, and mlx-lm has no fast kernels: there it shows what the sums cost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from benches.gpu import collect
from benches.harness import machine
from benches.harness.machine import ROOT
from benches.names import MLX_LM, TINY_LLM
from benches.report.tables import Record, table
from tiny_llm.cli.arguments import integer
from tiny_llm.cli.exit_codes import Failure
from tiny_llm.cli.output_files import output_file
from tiny_llm.distributed.launch import free_port
from tiny_llm.runtime.extension import load_extension

HERE = "127.0.0.1"
WEIGHTS = {"4-bit": 4, "bf16": None}
TARGETS = {"prefill": 1.7, "decode": 1.6}  # of the 32B shape, two GPUs against one
SECONDS = 1800  # of a group


def figures(size: int, model: str, weights: str, options: argparse.Namespace) -> Record:
    """What rank 0 of a new group has measured."""
    addresses = [f"{HERE}:{free_port(HERE)}" for _ in range(size)]
    on_gpu = mx.is_available(mx.gpu)
    threads = str(max(load_extension().cpu_threads()[0] // size, 1))
    processes = []
    for rank in range(size):
        given = {"rank": rank, "addresses": addresses, "model": model, "bits": WEIGHTS[weights]}
        given |= {"prompt": options.prompt, "answer": options.answer, "repeats": options.repeats}
        alone = {"CUDA_VISIBLE_DEVICES": str(rank)} if on_gpu else {"TINY_LLM_THREADS": threads}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "benches.contestants.engine.ranks", json.dumps(given)],
                cwd=ROOT,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **os.environ, **alone},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
        )
    try:
        output, _ = processes[0].communicate(timeout=SECONDS)
        if any(process.wait(SECONDS) for process in processes):
            raise Failure(f"{model} on {size} ranks: a process has failed")
    finally:
        for process in processes:
            process.kill()
    found: Record = json.loads(output.splitlines()[-1])
    return found


def rows(options: argparse.Namespace) -> Iterator[Record]:
    """One for each model, weights and number of ranks."""
    for model in options.models:
        for weights in options.weights:
            alone: Record = {}
            for size in options.ranks:
                found = figures(size, model, weights, options)
                alone = alone or found
                (first, step), theirs = found[TINY_LLM], found.get(MLX_LM)
                yield {
                    "model": model,
                    "weights": weights,
                    "ranks": size,
                    "prefill": options.prompt / first,
                    "decode": 1 / step,
                    "prefill_gain": alone[TINY_LLM][0] / first,
                    "decode_gain": alone[TINY_LLM][1] / step,
                    "sums": None if found["sums"] is None else found["sums"] / step,
                    MLX_LM: theirs and {"prefill": options.prompt / theirs[0], "decode": 1 / theirs[1]},
                    "target": _verdict(model, size, alone[TINY_LLM], found[TINY_LLM]),
                }


def _verdict(model: str, size: int, alone: Sequence[float], shared: Sequence[float]) -> str:
    """Targets are for GPUs: processes on one machine's cores can only lose."""
    if (model, size) != ("32b", 2) or not mx.is_available(mx.gpu):
        return ""
    gains = {what: one / two for what, one, two in zip(TARGETS, alone, shared, strict=True)}
    return ", ".join(
        f"{what} >= {target}x: {'met' if gains[what] >= target else 'missed'}"
        for what, target in TARGETS.items()
    )


def measured_table(record: Record) -> str:
    header = ["model", "ranks", "prompt tok/s", "", "decode tok/s", "", "sums", MLX_LM, "target"]
    return table(header, [_cells(row) for row in record["rows"]])


def _cells(row: Record) -> list[str]:
    theirs = row[MLX_LM]
    return [
        f"{row['model']}, {row['weights']}",
        str(row["ranks"]),
        f"{row['prefill']:.4g}",
        f"{row['prefill_gain']:.2f}x",
        f"{row['decode']:.4g}",
        f"{row['decode_gain']:.2f}x",
        "" if row["sums"] is None else f"{row['sums']:.0%}",
        "" if theirs is None else f"{theirs['prefill']:.4g}, {theirs['decode']:.4g}",
        row["target"],
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pdm bench ranks", description=__doc__)
    names: Any = ["qwen2-0.5b", "qwen2-7b", "32b"]
    parser.add_argument("--models", nargs="+", choices=names, default=names[:1], help="default: qwen2-0.5b")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=["4-bit"], help="default: 4-bit")
    parser.add_argument(
        "--ranks", nargs="+", type=integer(1), default=[1, 2], metavar="N", help="default: 1 2"
    )
    parser.add_argument("--prompt", type=integer(1), default=512, help="tokens (default: 512)")
    parser.add_argument("--answer", type=integer(2), default=64, help="tokens (default: 64)")
    parser.add_argument("--repeats", type=integer(1), default=5, help="runs of each (default: 5)")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record")
    options = parser.parse_args(argv)
    record: Record = {"benchmark": "ranks", **machine.describe(), "rows": []}
    return collect(parser.prog, record, lambda: rows(options), measured_table, options.json)
