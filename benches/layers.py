"""`pdm bench layers`: the layers of a model, ours beside the same in plain MLX operations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benches.cases.layers import MODEL, layer_cases
from benches.harness.measured import Measured
from benches.harness.operation import Case, measure
from benches.suite import Suite, run

GROUPS = {
    "decode": f"one token behind 512 in the cache, one block of {MODEL} in 4 bits",
    "prefill": "512 tokens and an empty cache, the same block",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when one of our layers gave a wrong result."""
    return run(SUITE, argv)


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Measured]:
    (threads,) = options.threads  # a process has one number of them
    yield measure(case, threads, options.repeats)


SUITE = Suite(
    name="layers",
    about="Times a block, its attention, MLP, norm and RoPE, the embedding and the scores of all tokens,\n"
    "ours as a model has them beside plain MLX operations in float32, which are also what is right.",
    groups=GROUPS,
    cases=layer_cases,
    is_quick=lambda case: case.quick,
    measure=_rows,
    process_for_threads=True,
)

if __name__ == "__main__":
    raise SystemExit(main())
