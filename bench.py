"""`pdm bench attention [options]`: the benchmarks, by name."""

import importlib
import sys

SUITES = ("attention",)

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SUITES:
        if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
            print(f"no benchmark {sys.argv[1]!r}; there is: {', '.join(SUITES)}", file=sys.stderr)
        print(f"usage: pdm bench {{{','.join(SUITES)}}} [--help]", file=sys.stderr)
        sys.exit(2)
    sys.exit(importlib.import_module(f"benches.{sys.argv[1]}").main(sys.argv[2:]))
