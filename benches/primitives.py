"""`pdm bench primitives`: how many operations a step starts on a GPU, in tiny_llm and mlx-lm, without a GPU.

Nothing is timed, and the counts are the same on every machine with the same versions of MLX and mlx-lm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import mlx.core as mx

from benches.cases.primitives import Case, cases, mlx_lm_step, our_step
from benches.harness.gpu_graph import gpu_graphs
from benches.harness.primitives import Graph, count
from benches.names import MLX_LM, TINY_LLM
from benches.report.primitives import counts_table
from benches.report.tables import Record
from tiny_llm.cli.exit_codes import FAILED, Failure
from tiny_llm.cli.mlx_lm_backend import check_mlx_lm
from tiny_llm.cli.output_files import output_file, write_whole
from tiny_llm.loading.weights.random_model import random_config

LAYERS = (2, 3)  # the difference is a layer; what is left of the first is outside of all layers
CONTESTANTS: dict[str, Callable[[Case, int], list[mx.array]]] = {TINY_LLM: our_step, MLX_LM: mlx_lm_step}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, whichever counts are higher: a test compares them."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.device == "gpu" and not mx.is_available(mx.gpu):
        parser.error("--device: got gpu, expected cpu: MLX finds no GPU on this machine")
    try:
        check_mlx_lm()
    except Failure as failure:
        print(f"{parser.prog}: {failure}", file=sys.stderr)
        return FAILED
    record = count_all(mx.Device(getattr(mx, options.device)))
    table = counts_table(record)
    print(table)
    if options.json:
        write_whole(options.json, json.dumps(record, indent=1) + "\n")
    if options.table:
        write_whole(options.table, table + "\n")
    return 0


def count_all(device: mx.Device) -> Record:
    """The record of all cases; on a GPU, of the graphs that MLX builds there."""
    mx.set_default_device(device)
    with gpu_graphs() as blanks:
        rows = [
            {
                "model": case.model,
                "weights": case.weights,
                "work": case.work,
                "layers": random_config(case.model).num_hidden_layers,
                **{name: _counts(step, case, blanks) for name, step in CONTESTANTS.items()},
            }
            for case in cases()
        ]
    versions = {package: version(package) for package in ("mlx", "mlx-lm")}
    return {"benchmark": "primitives", "versions": versions, "rows": rows}


def _counts(
    step: Callable[[Case, int], list[mx.array]], case: Case, blanks: dict[str, mx.array]
) -> dict[str, Any]:
    """Kernels and primitives of each layer and outside of them."""
    fewer, more = (count(step(case, layers), blanks) for layers in LAYERS)
    layer = _difference(more, fewer, 1)
    outside = _difference(fewer, layer, LAYERS[0])
    return {
        name: {
            "primitives": part.primitives.total(),
            "kernels": part.kernels,
            "names": dict(sorted(part.primitives.items())),
        }
        for name, part in (("layer", layer), ("outside", outside))
    }


def _difference(whole: Graph, part: Graph, times: int) -> Graph:
    """`whole` without `times` parts; a primitive that only the last layer lacks gives a negative count."""
    names = whole.primitives.keys() | part.primitives.keys()
    left = {name: whole.primitives[name] - times * part.primitives[name] for name in names}
    return Graph(
        Counter({name: number for name, number in left.items() if number}),
        whole.kernels - times * part.kernels,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdm bench primitives",
        description="Counts the primitives of MLX in a decode step and a prefill as on a GPU, and the\n"
        "kernels that they start, of tiny_llm and mlx-lm. Needs no GPU; docs/gpu.md says what is counted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--device", choices=["cpu", "gpu"], default="cpu",
        help="gpu: count the graphs that MLX builds on this machine's GPU (default: cpu)",
    )  # fmt: skip
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the record to this file")
    parser.add_argument("--table", type=output_file, metavar="FILE", help="write the table to this file too")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
