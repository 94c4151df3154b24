"""`pdm bench attention [options]`: the benchmarks, by name."""

import importlib
import sys

SUITES = ("attention",)

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SUITES:
        print(f"usage: pdm bench {{{','.join(SUITES)}}} [--help]", file=sys.stderr)
        sys.exit(2)
    sys.exit(importlib.import_module(f"benches.{sys.argv[1]}").main(sys.argv[2:]))
