"""`pdm bench peers`: whole models, ours beside llama.cpp and mlx-lm on the same weights."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from benches.cases.models import GROUPS, Case, cases, is_quick
from benches.contestants.pool import Hall
from benches.harness.measure_models import measure
from benches.harness.measured import Measured
from benches.suite import Suite, run


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when our scores were wrong; a missed target or contestant is reported, not an error."""
    with Hall() as hall:

        def rows(case: Case, options: argparse.Namespace) -> Iterator[Measured]:
            return measure(hall, case, options.threads, options.repeats)

        suite = Suite(
            name="peers",
            about="Times whole models on the same weights, 4 bits each: ours, llama.cpp's and mlx-lm's, a\n"
            "process each, which work in turn. The scores behind the prompt are compared before the clock\n"
            "starts. llama.cpp takes part where llama-cpp-python is installed (docs/benchmarks.md).",
            groups=GROUPS,
            cases=cases,
            is_quick=is_quick,
            measure=rows,
            repeats=7,
        )
        return run(suite, argv)


if __name__ == "__main__":
    raise SystemExit(main())
