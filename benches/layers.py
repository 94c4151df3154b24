"""`pdm bench layers`: the layers of a model, in tiny_llm and in MLX operations."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benches.cases.layers import MODEL, layer_cases
from benches.harness.contestant import Case
from benches.harness.measure import measure
from benches.harness.row import Row
from benches.suite import Suite

GROUPS = {
    "decode": f"one token with 512 in the cache, one block of {MODEL} in 4 bits",
    "prefill": "512 tokens and an empty cache, the same block",
}


def _rows(case: Case, options: argparse.Namespace) -> Iterator[Row]:
    (threads,) = options.threads  # of this process
    yield measure(case, threads, options.repeats)[0]


SUITE = Suite(
    name="layers",
    about="Measures a block, its attention, MLP, norm and RoPE, the token embedding and the logits, as a\n"
    "model of tiny_llm runs them, beside MLX operations in float32, which give the expected results.",
    groups=GROUPS,
    cases=layer_cases,
    is_quick=lambda case: case.quick,
    measure=_rows,
    process_for_threads=True,
)
main = SUITE.main

if __name__ == "__main__":
    raise SystemExit(main())
