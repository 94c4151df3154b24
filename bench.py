"""`pdm bench [NAME] [options]`: run the benchmark of that name, one of SUITES; `model` by default."""

import importlib
import signal
import sys

SUITES = (
    "model attention kernels layers peers primitives training prefill crossover decode flashtile "
    "schedules gpu"
)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # during imports, Ctrl-C ends it without a traceback
    name, *arguments = sys.argv[1:] or ["model"]
    if name.startswith("-"):
        name, arguments = "model", sys.argv[1:]
    if name not in SUITES.split():
        print(f"pdm bench: unknown benchmark {name!r}, expected {SUITES.replace(' ', ', ')}", file=sys.stderr)
        sys.exit(2)
    if name == "model" and not {"-h", "--help"}.isdisjoint(arguments):
        print(f"Other benchmarks, each with --help: pdm bench {', '.join(SUITES.split()[1:])}.\n")
    sys.exit(importlib.import_module(f"benches.{name}").main(arguments))
